# SPDX-License-Identifier: Apache-2.0
"""The contract in Python: what is asked for, and what is answered."""
