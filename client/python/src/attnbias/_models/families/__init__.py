# SPDX-License-Identifier: Apache-2.0
"""Model families, grouped by how they get positions from a server."""
