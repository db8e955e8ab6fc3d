"""Pydantic models of every JSON object the API takes (`requests`) and sends (`responses`).

Rule: each member is declared once, here; the parsing of bodies, the answers and the OpenAPI document
all come from these classes.  Imports no web server: the command line prints the same objects.
"""
