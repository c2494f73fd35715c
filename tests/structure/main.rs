//! The structure of the crate, read from its sources: layers, import cycles and type names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod source;

use std::collections::{BTreeMap, BTreeSet};

use source::{Module, modules};

/// Type names that occur more than once, each with its reason.
const REPEATED_TYPE_NAMES: &[(&str, &str)] = &[];

type Graph = BTreeMap<String, BTreeSet<String>>;

/// The layers as `docs/architecture.md` draws them: a line `gateway → api, pipeline` allows these imports.
fn documented_layers() -> Graph {
    let text = std::fs::read_to_string(source::repository().join("docs/architecture.md")).expect("architecture.md");
    let block = text.split("```layers\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a layers block");
    let mut layers = Graph::new();
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let (module, imports) = line.split_once('→').unwrap_or_else(|| panic!("no arrow in `{line}`"));
        let imports = imports.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "nothing");
        let previous = layers.insert(module.trim().to_owned(), imports.map(str::to_owned).collect());
        assert!(previous.is_none(), "docs/architecture.md lists {} twice", module.trim());
    }
    layers
}

/// Imports between top-level modules, without those of tests.
fn top_level_imports(modules: &[Module]) -> Graph {
    let product = || modules.iter().filter(|module| !module.is_test && !module.path.is_empty());
    let names: BTreeSet<&String> = product().map(|module| &module.path[0]).collect();
    let mut graph = Graph::new();
    for module in product() {
        let named = module.imports.iter().filter_map(|path| path.first());
        let others = named.filter(|name| names.contains(name) && **name != module.path[0]);
        graph.entry(module.path[0].clone()).or_default().extend(others.cloned());
    }
    graph
}

#[test]
fn modules_import_only_what_the_architecture_page_allows() {
    let (layers, imports) = (documented_layers(), top_level_imports(&modules()));
    let documented: BTreeSet<&String> = layers.keys().collect();
    let existing: BTreeSet<&String> = imports.keys().collect();
    assert_eq!(documented, existing, "docs/architecture.md and src/ have different top-level modules");
    let mut faults = Vec::new();
    for (module, imported) in &imports {
        faults.extend(imported.difference(&layers[module]).map(|other| format!("{module} imports {other}")));
        faults.extend(layers[module].difference(imported).map(|other| format!("{module} no longer imports {other}")));
    }
    assert!(faults.is_empty(), "docs/architecture.md disagrees with src/:\n{}", faults.join("\n"));
}

#[test]
fn the_layers_have_no_cycle() {
    assert_eq!(cycle_in(&documented_layers()), None);
}

/// A module and its own submodules may use each other; modules of the same folder must not do so in a cycle.
#[test]
fn modules_of_one_folder_do_not_import_each_other_in_a_cycle() {
    let modules = modules();
    let folders: BTreeSet<&[String]> = modules
        .iter()
        .filter(|module| !module.path.is_empty())
        .map(|module| &module.path[..module.path.len() - 1])
        .collect();
    let mut cycles = Vec::new();
    for folder in folders {
        let depth = folder.len();
        let mut graph = Graph::new();
        for module in modules.iter().filter(|module| !module.is_test && module.path.len() > depth) {
            if module.path[..depth] != *folder {
                continue;
            }
            let imports = graph.entry(module.path[depth].clone()).or_default();
            let siblings = module.imports.iter().filter(|path| path.len() > depth && path[..depth] == *folder);
            imports.extend(siblings.map(|path| path[depth].clone()).filter(|name| *name != module.path[depth]));
        }
        cycles.extend(cycle_in(&graph).map(|cycle| format!("{}: {}", folder.join("::"), cycle.join(" → "))));
    }
    assert!(cycles.is_empty(), "{}", cycles.join("\n"));
}

#[test]
fn a_cycle_is_found() {
    let graph = |edges: &[(&str, &str)]| {
        edges.iter().map(|(from, to)| ((*from).to_owned(), BTreeSet::from([(*to).to_owned()]))).collect::<Graph>()
    };
    assert_eq!(cycle_in(&graph(&[("a", "b"), ("b", "c")])), None);
    assert_eq!(cycle_in(&graph(&[("a", "b"), ("b", "c"), ("c", "b")])).map(|cycle| cycle.len()), Some(3));
}

/// The first cycle of a graph, its first node repeated at its end.
fn cycle_in(graph: &Graph) -> Option<Vec<String>> {
    fn visit(graph: &Graph, node: &str, path: &mut Vec<String>, done: &mut BTreeSet<String>) -> Option<Vec<String>> {
        if let Some(start) = path.iter().position(|other| other == node) {
            return Some(path[start..].iter().cloned().chain([node.to_owned()]).collect());
        }
        if done.contains(node) {
            return None;
        }
        path.push(node.to_owned());
        let found = graph.get(node).into_iter().flatten().find_map(|next| visit(graph, next, path, done));
        path.pop();
        done.insert(node.to_owned());
        found
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|node| visit(graph, node, &mut Vec::new(), &mut done))
}

#[test]
fn a_type_name_occurs_once_in_the_crate() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for module in modules() {
        for name in module.types {
            places.entry(name).or_default().push(module.file.clone());
        }
    }
    assert!(places.len() > 300, "only {} types were read", places.len());
    for (name, reason) in REPEATED_TYPE_NAMES {
        assert!(places.get(*name).is_some_and(|files| files.len() > 1), "`{name}` occurs once: remove its exception");
        assert!(!reason.is_empty(), "`{name}` has no reason");
    }
    let allowed = |name: &str| REPEATED_TYPE_NAMES.iter().any(|(repeated, _)| *repeated == name);
    let repeated: Vec<String> = places
        .iter()
        .filter(|(name, files)| files.len() > 1 && !allowed(name))
        .map(|(name, files)| format!("{name}: {}", files.join(", ")))
        .collect();
    assert!(repeated.is_empty(), "{}", repeated.join("\n"));
}
