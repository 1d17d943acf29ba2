# SPDX-License-Identifier: Apache-2.0
"""The contract in Python: requests and responses."""
