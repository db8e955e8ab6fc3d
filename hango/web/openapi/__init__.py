"""The API's description: an OpenAPI 3.1 document, and the same as a page to read.

Rule: both are made from the routes and models that serve the requests.
"""

from hango.web.openapi.document import TAGS, make_document
from hango.web.openapi.routes import DocumentRoutes

__all__ = ["TAGS", "DocumentRoutes", "make_document"]
