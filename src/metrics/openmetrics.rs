//! The page in the OpenMetrics format, which has exemplars. Made from the text format, so that both have the same series.

use std::collections::HashMap;

/// The content type.
pub(crate) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Rewrites a page of the text format. `exemplars` are by series.
pub(super) fn rewrite(page: &str, exemplars: &HashMap<String, String>) -> String {
    let mut text = String::with_capacity(page.len() + page.len() / 8);
    // The text format has the help of a metric before its type, so the lines of both are written with the type.
    let mut help = None;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            // The samples of a counter have the suffix, the metric has not.
            let family = if kind == "counter" { name.strip_suffix("_total").unwrap_or(name) } else { name };
            text.extend(["# TYPE ", family, " ", kind, "\n"]);
            if let Some((_, help)) = help.take().filter(|(documented, _)| *documented == name) {
                text.extend(["# HELP ", family, " ", &help.replace('"', "\\\""), "\n"]);
            }
        } else {
            text.push_str(line);
            let series = line.rsplit_once(' ').map(|(series, _)| series);
            if let Some(exemplar) = series.and_then(|series| exemplars.get(series)) {
                text.extend([" ", exemplar]);
            }
            text.push('\n');
        }
    }
    text.push_str("# EOF\n");
    text
}

#[cfg(test)]
mod tests;
