//! Reads the sources: each module with its imports and the types that it declares.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// One source file.
pub struct Module {
    /// Relative to the repository.
    pub file: String,
    /// The module path; empty for the crate root.
    pub path: Vec<String>,
    /// Whether it holds tests only.
    pub is_test: bool,
    /// The crate's own modules and items that it names.
    pub imports: BTreeSet<Vec<String>>,
    /// The types that it declares.
    pub types: Vec<String>,
}

/// The repository's root.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every module of the crate.
pub fn modules() -> Vec<Module> {
    let root = repository().join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    assert!(files.len() > 100, "only {} files were found", files.len());
    files.iter().map(|file| read(&root, file)).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn read(root: &Path, file: &Path) -> Module {
    let relative = file.strip_prefix(root).expect("under src").with_extension("");
    let mut path: Vec<String> = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if matches!(path.as_slice(), [only] if only == "lib" || only == "main") {
        path.clear();
    }
    let code = without_comments_and_strings(&std::fs::read_to_string(file).expect("source text"));
    let is_test = path.iter().any(|part| part == "tests");
    // An inline test module stands at the end of its file.
    let product = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    Module {
        file: format!("src/{}", file.strip_prefix(root).expect("under src").display()),
        imports: imports(product, &path),
        types: types(&code),
        is_test,
        path,
    }
}

/// Blanks comments and the contents of strings, so that only code is searched.
fn without_comments_and_strings(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default();
        for (number, part) in line.split('"').enumerate() {
            if number % 2 == 0 {
                code.push_str(part);
            }
        }
        code.push('\n');
    }
    code
}

/// The paths below `crate` that the code names, in `use` trees and inline.
fn imports(code: &str, path: &[String]) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for root in ["crate::", "super::", "self::"] {
        for (start, _) in code.match_indices(root) {
            let before = code[..start].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let mut tree = Vec::new();
            expand(&code[start..], &mut Vec::new(), &mut tree);
            found.extend(tree.into_iter().filter_map(|named| resolve(&named, path)));
        }
    }
    found
}

/// Expands a path or `use` tree at the beginning of `code`; returns what follows it.
fn expand<'a>(code: &'a str, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    let code = code.trim_start();
    if let Some(mut rest) = code.strip_prefix('{') {
        loop {
            rest = rest.trim_start();
            if let Some(after) = rest.strip_prefix('}') {
                return after;
            }
            let before = rest.len();
            rest = expand(rest, prefix, found).trim_start();
            if let Some(alias) = rest.strip_prefix("as ") {
                rest = alias.trim_start().trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').trim_start();
            }
            rest = rest.strip_prefix(',').unwrap_or(rest);
            if rest.len() >= before {
                return rest;
            }
        }
    }
    let end = code.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(code.len());
    let (name, rest) = code.split_at(end);
    if name.is_empty() {
        // A glob: everything of the module.
        found.push(prefix.clone());
        return rest.strip_prefix('*').unwrap_or(rest);
    }
    prefix.push(name.to_owned());
    let rest = match rest.strip_prefix("::") {
        Some(next) => expand(next, prefix, found),
        None => {
            found.push(prefix.clone());
            rest
        }
    };
    prefix.pop();
    rest
}

/// A path from the crate's root; none if it leaves the crate.
fn resolve(named: &[String], from: &[String]) -> Option<Vec<String>> {
    let mut base: Vec<String> = from.to_vec();
    let mut rest = named;
    match rest.first().map(String::as_str) {
        Some("crate") => {
            base.clear();
            rest = &rest[1..];
        }
        Some("self") => rest = &rest[1..],
        _ => {
            while rest.first().is_some_and(|part| part == "super") {
                base.pop()?;
                rest = &rest[1..];
            }
        }
    }
    let rest = rest.iter().filter(|part| *part != "self").cloned();
    Some(base.into_iter().chain(rest).collect())
}

fn types(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in code.lines() {
        let item = line.trim_start();
        let item = match item.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => rest.split_once(')').map_or(rest, |(_, rest)| rest).trim_start(),
            Some(rest) => rest.trim_start(),
            None => item,
        };
        let declared = ["struct ", "enum ", "trait ", "union "].iter().find_map(|keyword| item.strip_prefix(keyword));
        // `type` inside an `impl` is an associated type, whose name the trait gives.
        let alias = item.strip_prefix("type ").filter(|_| !line.starts_with(' '));
        if let Some(rest) = declared.or(alias) {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            // In a macro the name is a variable.
            if !name.is_empty() {
                names.push(name);
            }
        }
    }
    names
}
