"""What may stand between two tokens of a schema or a query. Line comments bring their own newline."""

from __future__ import annotations

from hypothesis import strategies as st

GAPS = st.sampled_from(
    [
        " ",
        " ",
        " ",
        "\n",
        "\t",
        "\r\n",
        "\n\n",
        "\n\n\n",
        " // note\n",
        "/* a */",
        "\n/* two\n   lines */\n",
        "// {\n\n",
        " /**/ ",
    ]
)
