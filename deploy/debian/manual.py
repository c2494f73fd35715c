"""Writes the manual page deskgate.toml(5) from the reference configuration, conf/deskgate.toml."""

import re

HEAD = """.TH deskgate.toml 5 "{date}" "deskgate {version}" "deskgate manual"
.SH NAME
deskgate.toml \\- configuration of the deskgate authentication gateway
.SH DESCRIPTION
"""

TAIL = """.SH FILES
.TP
.I /etc/deskgate/deskgate.toml
The configuration of the packaged service.
.TP
.I /etc/deskgate/lua\\-free\\-rules/
Its rules.
.TP
.I /var/lib/deskgate/
Its data directory: databases, keys and the control socket.
.SH "SEE ALSO"
.BR deskgate (1),
.BR deskgate\\-serve (1),
.BR deskgate\\-check (1)
"""

# A setting, or one that is commented out; at the end of the line there may be a comment on it.
SETTING = re.compile(r"^(?:# )?([a-z_0-9]+ = .*)$")


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def setting(line):
    """The setting of a line without its `#`, or None for a comment in prose."""
    found = SETTING.match(line)
    return found.group(1) if found else None


class Page:
    """Collects the page; a setting is written once its description is complete."""

    def __init__(self, version, date):
        self.out, self.said, self.tags, self.meaning = [HEAD.format(version=version, date=date)], [], [], ""
        self.in_settings, self.has_remark = False, False

    def section(self, name):
        self.finish_setting()
        if not self.in_settings:
            self.paragraph()
            self.out.append(".SH SETTINGS\n")
            self.in_settings = True
        if name.startswith("[["):
            self.paragraph()
        self.out.append(f'.SS "{escape(name)}"\n')
        self.paragraph()

    def setting(self, text):
        value, _, remark = text.partition("    # ")
        meaning = " ".join([*self.said, remark.strip()]).strip()
        self.said.clear()
        # Settings that follow another one without a word share its description, unless that stands on the same line.
        if meaning or not self.tags or self.has_remark:
            self.finish_setting()
            self.meaning = meaning
        self.has_remark = bool(remark)
        self.tags.append(value.strip())

    def finish_setting(self):
        for macro, tag in zip([".TP"] + [".TQ"] * len(self.tags), self.tags):
            self.out.append(f"{macro}\n\\fB{escape(tag)}\\fR\n")
        if self.tags:
            self.out.append((escape(self.meaning) or "\\&") + "\n")
        self.tags.clear()

    def paragraph(self):
        self.finish_setting()
        if self.said:
            self.out.append(".PP\n" + escape(" ".join(self.said)) + "\n")
            self.said.clear()


def page(reference, version, date):
    """The manual page of a reference file: sections, settings with their defaults, and what is said about them."""
    result = Page(version, date)
    for line in reference.splitlines():
        text = line[2:] if line.startswith("# ") else line
        if re.fullmatch(r"\[{1,2}[a-z0-9_.]+\]{1,2}", text):
            result.section(text)
        elif line in ("", "#"):
            result.paragraph()
        elif setting(text):
            result.setting(setting(text))
        else:
            result.said.append(text.strip())
    result.paragraph()
    return "".join(result.out) + TAIL
