#!/usr/bin/env python3
"""Checks an HTML page of `partita plan --report`: well nested, every section there, bars
that add up to their picture's width, nothing fetched from elsewhere, names escaped.

usage: check_page.py PAGE [TEXT…]     each text must be in the page's visible text
"""
import re
import sys
from html.parser import HTMLParser

VOID = {"meta", "rect", "line", "polyline", "br", "img", "link"}


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.text, self.errors, self.bars = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        for name in ("src", "href"):
            if name in values:
                self.errors.append(f"<{tag}> fetches {values[name]}")
        if tag in ("script", "link", "iframe", "object"):
            self.errors.append(f"<{tag}> in a page that needs none")
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "rect" and "width" in values and self.ids[-1:] == ["time"]:
            self.bars.append(float(values["width"]))
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.errors.append(f"</{tag}> closes nothing at {self.getpos()}")

    def handle_data(self, data):
        self.text.append(data)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        source = file.read()
    page = Page()
    page.feed(source)
    page.close()
    errors = page.errors
    if page.open:
        errors.append(f"not closed: {page.open}")
    for section in ("mesh", "time", "levels", "memory", "plans", "strategies",
                    "conversions"):
        if page.ids.count(section) != 1:
            errors.append(f"section {section} is there {page.ids.count(section)} times")
    if abs(sum(page.bars) - 760) > 1:
        errors.append(f"the parts of the time add up to {sum(page.bars)} of 760")
    points = re.search(r'points="([^"]*)"', source)
    if not points or len(points.group(1).split()) < 4:
        errors.append("no curve of memory")
    if re.search(r"https?://", source):
        errors.append("an address in the page")
    text = "".join(page.text)
    for wanted in sys.argv[2:]:
        if wanted not in text:
            errors.append(f"'{wanted}' is not said")
    for error in errors:
        print("error:", error)
    print("page:", "wrong" if errors else "right")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
