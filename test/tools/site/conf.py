# How Sphinx makes a site of README.md, CHANGELOG.md and docs, which are as GitHub shows them. `make site` calls it.
import re
from pathlib import Path

project = html_title = "Quorate"
root_doc = "README"
include_patterns = ["README.md", "CHANGELOG.md", "docs/**.md"]
extensions = ["myst_parser"]
myst_heading_anchors = 6
suppress_warnings = ["misc.highlighting_failure"]  # code in languages that Pygments does not know
html_theme = "furo"
html_favicon = "../../../docs/icon.svg"
html_copy_source = False

sidebar = {
    "Start": ["docs/README", "docs/tutorial", "docs/troubleshooting"],
    "How-to": ["docs/how-to/*"],
    "Reference": ["docs/reference/*", "CHANGELOG"],
    "Explanation": ["docs/explanation/*"],
    "Evidence": ["docs/evidence/README", "docs/evidence/*"],
    "Decisions": ["docs/decisions/*"],
}
root = Path(__file__).parents[3]


def at_github(page, link):
    """A link to what is no page leads to the repository. One that leads nowhere stays, and Sphinx refuses it."""
    target = (root / page).parent.joinpath(link[1]).resolve()
    path = str(target.relative_to(root))
    if path in include_patterns or path.startswith("docs/") and target.is_file() or not target.exists():
        return link[0]
    kind = "tree" if target.is_dir() else "blob"
    return f"](https://github.com/quorate-dev/quorate/{kind}/main/{path}{link[2]})"


def read(app, page, text):
    text[0] = re.sub(r"\]\((?!\w+:)([^)#\s]+)((?:#[^)\s]*)?)\)", lambda link: at_github(page, link), text[0])
    if page == root_doc:
        for caption, pages in sidebar.items():
            text[0] += "\n".join(["", "```{toctree}", ":hidden:", ":glob:", f":caption: {caption}", *pages, "```", ""])


def setup(app):
    app.connect("source-read", read)
