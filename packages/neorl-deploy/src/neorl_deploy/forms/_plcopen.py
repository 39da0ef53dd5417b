"""Prints a form as PLCopen XML (TC6, version 2.01), the document that engineering tools import.

It holds the function block of :mod:`_structured_text`: the same variables, and the same statements
as its body.

Source: PLCopen Technical Committee 6, *XML Formats for IEC 61131-3*, version 2.01.
"""

from __future__ import annotations

import datetime
from xml.etree import ElementTree

from neorl_deploy.forms._form import Form
from neorl_deploy.forms._structured_text import Declarations, Declared, block_of

NAMESPACES = {
    "xmlns": "http://www.plcopen.org/xml/tc6_0201",
    "xmlns:xhtml": "http://www.w3.org/1999/xhtml",
}
ELEMENTS = {"VAR_INPUT": "inputVars", "VAR_OUTPUT": "outputVars"}
"""Elements of groups of variables; of other keywords, ``localVars``."""


def plcopen_xml(form: Form, *, long: bool = False) -> str:
    """A form as a PLCopen document with one function block and no instance of it.

    Args:
        form: The form.
        long: Whether to compute in ``LREAL`` (double precision) instead of ``REAL``.
    """
    block = block_of(form, long=long)
    made = datetime.datetime.now(datetime.UTC)
    project = ElementTree.Element("project", NAMESPACES)
    about = {"companyName": "", "productName": "neorl", "productVersion": form.digest}
    about["creationDateTime"] = made.isoformat(timespec="seconds")
    ElementTree.SubElement(project, "fileHeader", about)
    content = ElementTree.SubElement(project, "contentHeader", {"name": block.name})
    coordinates = ElementTree.SubElement(content, "coordinateInfo")
    for language in ("fbd", "ld", "sfc"):  # required, though the block has no picture
        at = ElementTree.SubElement(coordinates, language)
        ElementTree.SubElement(at, "scaling", {"x": "1", "y": "1"})
    types = ElementTree.SubElement(project, "types")
    ElementTree.SubElement(types, "dataTypes")
    names = {"name": block.name, "pouType": "functionBlock"}
    pou = ElementTree.SubElement(ElementTree.SubElement(types, "pous"), "pou", names)
    interface = ElementTree.SubElement(pou, "interface")
    for group in block.declarations:
        _declare(interface, group)
    _paragraph(ElementTree.SubElement(interface, "documentation"), block.head)
    body = ElementTree.SubElement(ElementTree.SubElement(pou, "body"), "ST")
    _paragraph(body, "\n".join(block.statements))
    ElementTree.SubElement(ElementTree.SubElement(project, "instances"), "configurations")
    ElementTree.indent(project)
    text = ElementTree.tostring(project, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _declare(interface: ElementTree.Element, group: Declarations) -> None:
    constant = {"constant": "true"} if group.keyword.endswith("CONSTANT") else {}
    variables = ElementTree.SubElement(
        interface, ELEMENTS.get(group.keyword, "localVars"), constant
    )
    for one in group.variables:
        variable = ElementTree.SubElement(variables, "variable", {"name": one.name})
        kind = ElementTree.SubElement(variable, "type")
        if one.width:
            array = ElementTree.SubElement(kind, "array")
            ElementTree.SubElement(array, "dimension", {"lower": "0", "upper": str(one.width - 1)})
            kind = ElementTree.SubElement(array, "baseType")
        ElementTree.SubElement(kind, "string" if one.kind == "STRING" else one.kind)
        if one.values:
            _initialise(ElementTree.SubElement(variable, "initialValue"), one)
        if one.words:
            _paragraph(ElementTree.SubElement(variable, "documentation"), one.words)


def _initialise(parent: ElementTree.Element, one: Declared) -> None:
    if one.width:
        array = ElementTree.SubElement(parent, "arrayValue")
        for value in one.values:
            ElementTree.SubElement(
                ElementTree.SubElement(array, "value"), "simpleValue", {"value": value}
            )
    else:
        ElementTree.SubElement(parent, "simpleValue", {"value": one.values[0]})


def _paragraph(parent: ElementTree.Element, text: str) -> None:
    ElementTree.SubElement(parent, "xhtml:p").text = text
