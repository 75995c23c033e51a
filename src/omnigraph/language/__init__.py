"""The two languages of OmniGraph: `.pg` schemas and `.gq` queries.

Pure: text and catalogs in, catalogs, plans and diagnostics out. Nothing in this package reads a file, opens
a table or imports Arrow.
"""
