"""Where documents come from: YAML 1.2 or JSON in files, streams and bytes, or parsed data.

`read_document` is the whole way to a valid document; `load` only reads.
"""

from headbay.client.source.loading import Loaded, Read, Source, load, read_document

__all__ = ["Loaded", "Read", "Source", "load", "read_document"]
