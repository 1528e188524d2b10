"""Own Parquet sources: tables of files, split by row groups."""
ENDINGS = (".parquet",)
class ParquetSource:
    def __init__(self, options):
        raise NotImplementedError
