//! Reads link files: CSV with a header and three columns, whose values need no quoting. Quotes around a value are
//! accepted, because spreadsheets write them.

/// The first line of a file.
const HEADER: &str = "corp_id,platform_user,employee_id";

/// Most links of one file. Each is written with its audit record, which takes a few milliseconds.
const MAX_LINKS: usize = 5_000;

/// Most faults that are shown at once.
const MAX_FAULTS: usize = 20;

/// A line of a link file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CsvLine<'a> {
    pub(super) corp_id: &'a str,
    pub(super) platform_user: &'a str,
    pub(super) employee_id: &'a str,
}

/// Lines with their numbers; a line that is not valid CSV carries its fault.
type NumberedLines<'a> = Vec<(usize, Result<CsvLine<'a>, String>)>;

/// Reads a file into numbered lines. Fails if the header is missing, or
/// if there are no or too many links.
pub(super) fn read(text: &str) -> Result<NumberedLines<'_>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let header = lines.next().map_or("", |(_, header)| header);
    if fields(header).join(",") != HEADER {
        return Err(format!("line 1: the first line must be `{HEADER}`"));
    }
    let links: Vec<_> =
        lines.filter(|(_, line)| !line.is_empty()).map(|(number, line)| (number, parse(line))).collect();
    match links.len() {
        0 => Err("the file has no links".to_owned()),
        count if count > MAX_LINKS => Err(format!("the file has {count} links; split it into files of {MAX_LINKS}")),
        _ => Ok(links),
    }
}

fn parse(line: &str) -> Result<CsvLine<'_>, String> {
    match fields(line)[..] {
        [corp_id, platform_user, employee_id] => Ok(CsvLine { corp_id, platform_user, employee_id }),
        ref other => Err(format!("expected 3 values separated by commas, found {}", other.len())),
    }
}

fn fields(line: &str) -> Vec<&str> {
    let unquoted = |field: &str| field.strip_prefix('"').and_then(|field| field.strip_suffix('"')).is_some();
    line.split(',')
        .map(str::trim)
        .map(|field| if field.len() >= 2 && unquoted(field) { &field[1..field.len() - 1] } else { field })
        .collect()
}

/// The faults of a file as one message.
pub(super) fn summary(faults: &[String]) -> String {
    let shown = faults.iter().take(MAX_FAULTS).cloned();
    let more = faults.len().checked_sub(MAX_FAULTS).filter(|more| *more > 0).map(|more| format!("and {more} more"));
    let lines: Vec<String> = shown.chain(more).chain(["no link was added".to_owned()]).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests;
