# SPDX-License-Identifier: Apache-2.0
"""Calls to a server: channels, retries, downloads."""
