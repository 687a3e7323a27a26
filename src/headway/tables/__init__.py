"""Tables: a result as rows whose columns say what they mean, with the provenance of the numbers.

`Table` is the one form in which results leave the analyses; `write_table` and `read_table` keep it in files, and
`atomic` is the one way anything in Headway is put on disk.
"""

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Column": "headway.tables.table",
        "Table": "headway.tables.table",
        "read_table": "headway.tables.files",
        "write_table": "headway.tables.files",
        "write_atomic": "headway.tables.atomic",
        "write_bytes_atomic": "headway.tables.atomic",
    },
)
