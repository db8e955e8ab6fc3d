"""The API described for programs (OpenAPI 3.1) and, made of the same description, for people.

Rule: `operations` and `schemas` say everything once; the document and the page are generated.  What is
said is held against what is served: the tests check every answer they get against the document.
Only `hango.web` uses it.
"""

from hango.web.openapi.document import make_document
from hango.web.openapi.operations import OPERATIONS
from hango.web.openapi.routes import DocumentRoutes

__all__ = ["OPERATIONS", "DocumentRoutes", "make_document"]
