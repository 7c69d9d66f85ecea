//! The modules of the runtime and of its client import only downwards, in the order of ARCHITECTURE.md. No two folders import each
//! other. No two files do, except for a file and its submodules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module's path inside the crate, such as `["local", "slot"]`.
type Module = Vec<String>;

/// The modules of a crate, and the imports of each.
struct Sources {
    modules: BTreeMap<Module, String>,
    /// The module that defines each public name of the crate's root.
    public: BTreeMap<String, Module>,
    /// The client's names that the crate's root re-exports.
    of_client: BTreeSet<String>,
}

impl Sources {
    fn read(folder: &Path) -> Self {
        let mut modules = BTreeMap::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    modules.insert(module_of(folder, &path), without_tests(&fs::read_to_string(&path).unwrap()));
                }
            }
        }
        modules.retain(|module, _| !is_test(module));
        let root = modules.remove(&vec!["lib".to_owned()]).unwrap();
        let imports = statements(&root, "use lock_wire");
        let of_client =
            imports.iter().flat_map(|import| paths(import)).filter_map(|path| path.last().cloned()).collect();
        let mut public = BTreeMap::new();
        for import in statements(&root, "pub use ").iter().flat_map(|import| paths(import)) {
            if let [module @ .., name] = import.as_slice() {
                public.insert(name.clone(), module.to_vec());
            }
        }
        Self { modules, public, of_client }
    }

    /// The modules that `from` imports.
    fn imports(&self, from: &Module, text: &str) -> BTreeSet<Module> {
        let imports = ["use ", "pub use ", "pub(crate) use ", "pub(super) use "];
        let all = imports.iter().flat_map(|import| statements(text, import));
        let written = all.flat_map(|import| paths(&import)).collect::<Vec<_>>();
        written.into_iter().filter_map(|path| self.target(from, &path)).collect()
    }

    /// The module that an import's path leads to; `None` for another crate.
    fn target(&self, from: &Module, path: &[String]) -> Option<Module> {
        let mut path = path.iter();
        let mut at = from.clone();
        match path.next()?.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => drop(at.pop()),
            child if self.modules.contains_key(&[from.clone(), vec![child.to_owned()]].concat()) => {
                at.push(child.to_owned());
            }
            _ => return None,
        }
        for segment in path {
            let longer = [at.clone(), vec![segment.clone()]].concat();
            if segment == "super" {
                at.pop();
            } else if self.modules.contains_key(&longer) {
                at = longer;
            } else {
                break;
            }
        }
        // A name in the crate's root.
        if at.is_empty() { None } else { Some(at) }
    }

    /// The folder of a module's file; a module with children counts to its own folder.
    fn folder(&self, module: &Module) -> Module {
        let has_children = self.modules.keys().any(|other| other.len() > module.len() && other.starts_with(module));
        if has_children {
            module.clone()
        } else {
            module.split_last().map(|(_, parent)| parent.to_vec()).unwrap_or_default()
        }
    }
}

fn module_of(folder: &Path, file: &Path) -> Module {
    let relative = file.strip_prefix(folder).unwrap().with_extension("");
    relative.iter().map(|part| part.to_str().unwrap().to_owned()).collect()
}

fn is_test(module: &Module) -> bool {
    module.iter().any(|part| ["tests", "simulation", "mutants", "fuzz"].contains(&part.as_str()))
}

/// The part of a file before its tests, without comments and test-only imports.
fn without_tests(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let mut kept = Vec::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        match line.trim() {
            "#[cfg(test)]" => drop(lines.next()),
            comment if comment.starts_with("//") => {}
            _ => kept.push(line),
        }
    }
    kept.join("\n") + "\n"
}

/// The unindented statements that begin with `start`, without `start` and the semicolon.
fn statements(text: &str, start: &str) -> Vec<String> {
    let lines = format!("\n{text}");
    let begin = format!("\n{start}");
    lines.split(&begin).skip(1).map(|rest| rest.split(';').next().unwrap().replace('\n', " ")).collect()
}

/// The paths of an import; one statement may have several in braces.
fn paths(import: &str) -> Vec<Module> {
    let import = import.split(" as ").next().unwrap().trim();
    let Some((before, inside)) = import.split_once('{') else {
        return vec![import.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()];
    };
    let inside = inside.strip_suffix('}').unwrap_or(inside);
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for letter in inside.chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        if letter == ',' && depth == 0 {
            parts.push(String::new());
        } else {
            parts.last_mut().unwrap().push(letter);
        }
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| paths(&format!("{before}{}", part.trim()))).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The crates, and the sections of ARCHITECTURE.md that have their modules.
const CRATES: [(&str, &str); 2] = [("lock-runtime/src", "## Layers"), ("lock-wire/src", "### The client")];

fn sources(folder: &str) -> Sources {
    Sources::read(&root().join(folder))
}

/// The modules in a section of ARCHITECTURE.md, from top to bottom.
fn layers(section: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let section = text.split(&format!("\n{section}\n")).nth(1).expect("there is such a section");
    let end = section.find("\n## ").into_iter().chain(section.find("\n### ")).min().unwrap_or(section.len());
    let rows = section[..end].lines().filter(|line| line.starts_with("| `"));
    rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// The imports between the modules of the crate's root, as pairs.
fn imports_between_layers(sources: &Sources) -> BTreeSet<(String, String)> {
    let mut all = BTreeSet::new();
    for (module, text) in &sources.modules {
        for import in
            ["use ", "pub use ", "pub(crate) use ", "pub(super) use "].iter().flat_map(|u| statements(text, u))
        {
            for path in paths(&import).iter().filter(|path| path.first().is_some_and(|first| first == "crate")) {
                let Some(name) = path.get(1).filter(|name| !sources.of_client.contains(*name)) else { continue };
                let target = sources.public.get(name).and_then(|module| module.first()).unwrap_or(name);
                if *target != module[0] {
                    all.insert((module[0].clone(), target.clone()));
                }
            }
        }
    }
    all
}

#[test]
fn each_module_imports_only_what_stands_below_it() {
    for (folder, section) in CRATES {
        check_layers(&sources(folder), &layers(section));
    }
}

fn check_layers(sources: &Sources, layers: &[String]) {
    let place = |name: &String| layers.iter().position(|layer| layer == name);
    let listed: BTreeSet<&String> = layers.iter().collect();
    let present: BTreeSet<&String> = sources.modules.keys().map(|module| &module[0]).collect();
    assert_eq!(listed, present, "ARCHITECTURE.md must list each module of the crate's root once");
    let upwards: Vec<_> = imports_between_layers(sources)
        .into_iter()
        .filter(|(from, to)| place(to).is_none_or(|to| Some(to) < place(from)))
        .collect();
    assert!(upwards.is_empty(), "these imports point upwards, or to a module that is not listed: {upwards:?}");
}

#[test]
fn no_two_folders_import_each_other() {
    for (folder, _) in CRATES {
        check_folders(&sources(folder));
    }
}

fn check_folders(sources: &Sources) {
    let mut edges: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, text) in &sources.modules {
        let from = sources.folder(module);
        for to in sources.imports(module, text).iter().map(|target| sources.folder(target)) {
            // A folder may import from the folders inside of it, and from those around it.
            if !from.starts_with(&to) && !to.starts_with(&from) {
                edges.entry(from.clone()).or_default().insert(to);
            }
        }
    }
    assert!(edges.len() >= 4, "too few imports found: {edges:?}");
    assert!(circles(&edges).is_empty(), "{:?}", circles(&edges));
}

#[test]
fn no_two_files_import_each_other_but_a_file_and_what_is_inside_of_it() {
    for (folder, least) in CRATES.map(|(folder, _)| folder).into_iter().zip([300, 50]) {
        check_files(&sources(folder), least);
    }
    let [first, second] = ["first", "second"].map(|name| vec![name.to_owned()]);
    let both = BTreeMap::from([(first.clone(), [second.clone()].into()), (second.clone(), [first.clone()].into())]);
    assert_eq!(circles(&both), [first, second], "a circle was not found");
}

fn check_files(sources: &Sources, least: usize) {
    let siblings = |module: &Module, text: &String| {
        let targets = sources.imports(module, text).into_iter();
        (module.clone(), targets.filter(|target| !module.starts_with(target)).collect())
    };
    let edges: BTreeMap<Module, BTreeSet<Module>> =
        sources.modules.iter().map(|(module, text)| siblings(module, text)).collect();
    assert!(edges.values().flatten().count() > least, "too few imports found");
    assert!(circles(&edges).is_empty(), "{:?}", circles(&edges));
}

/// The modules that import themselves through others.
fn circles(edges: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Module> {
    let is_in_circle = |from: &&Module| {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&Module> = edges[*from].iter().collect();
        while let Some(next) = open.pop() {
            if reached.insert(next) {
                open.extend(edges.get(next).into_iter().flatten());
            }
        }
        reached.contains(from)
    };
    edges.keys().filter(is_in_circle).cloned().collect()
}

/// What `text` uses that a lock may not use itself: it gets such things as events, or asks its `Env`.
fn impure(text: &str) -> Vec<&'static str> {
    let forbidden = [
        "tokio",
        "Mutex",
        "Core",
        "Slot",
        "Schedule",
        "store::",
        "local::",
        "Instant",
        "Moment::now",
        ".elapsed()",
        ".remaining()",
        "Deadline::after",
        ".has_passed()",
        "async ",
    ];
    forbidden.into_iter().filter(|word| text.contains(word)).collect()
}

#[test]
fn a_lock_decides_without_io_without_a_clock_and_without_a_mutex() {
    let sources = sources("lock-runtime/src");
    let files: Vec<_> = sources.modules.iter().filter(|(module, _)| module[0] == "lock").collect();
    assert!(files.len() > 10, "too few files found");
    for (module, text) in files {
        assert_eq!(impure(text), <[&str; 0]>::default(), "{module:?}");
    }
    let text = "async move { (Moment::now(), std::sync::Mutex::new(0)) }";
    assert_eq!(impure(text), ["Mutex", "Moment::now", "async "]);
}

#[test]
fn imports_are_read_as_they_are_written() {
    let text =
        without_tests("use a::b;\n// use c;\npub(crate) use d::{e, f::{self, G as H}};\n#[cfg(test)]\nuse x::y;\n");
    let found: Vec<String> = ["use ", "pub(crate) use "]
        .iter()
        .flat_map(|start| statements(&text, start))
        .flat_map(|import| paths(&import))
        .map(|path| path.join("::"))
        .collect();
    assert_eq!(found, ["a::b", "d::e", "d::f::self", "d::f::G"]);
}

/// The client must not use the lock's vocabulary.
#[test]
fn the_client_knows_no_lock() {
    let sources = sources("lock-wire/src");
    let words = ["lock_runtime", "Lease", "Token", "Release", "release(", "Renewal", "Fence", "Keeper"];
    for (module, text) in &sources.modules {
        let found: Vec<_> = words.iter().filter(|word| text.contains(*word)).collect();
        assert!(found.is_empty(), "{module:?} names {found:?}");
    }
}
