//! A crate in its own folder: fetches it, adds the runtime, and checks it.

use std::collections::BTreeSet;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use cargo_metadata::diagnostic::{Diagnostic, DiagnosticLevel, DiagnosticSpan};
use cargo_metadata::{Message, MetadataCommand};
use toml_edit::{DocumentMut, InlineTable, Item, Table, value};

/// The kernel counts a process's time in ticks of this length.
const TICK: Duration = Duration::from_millis(10);

pub(crate) struct Package {
    /// `tower 0.5.2`
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    /// The target folder that all crates share, so that the runtime is compiled once.
    target: PathBuf,
    features: &'static [&'static str],
}

/// The compiler's result for a crate.
pub(crate) struct Said {
    pub(crate) succeeds: bool,
    pub(crate) errors: Vec<Diagnostic>,
    /// Each with its file and line.
    pub(crate) warnings: BTreeSet<String>,
    /// Processor time, because the machine may be busy.
    pub(crate) time: Duration,
}

impl Package {
    /// `NAME`, `NAME@VERSION`, or a folder such as cargo unpacks.
    pub(crate) fn prepare(wanted: &str, folder: &Path) -> anyhow::Result<Self> {
        let source =
            if Path::new(wanted).join("Cargo.toml").exists() { PathBuf::from(wanted) } else { fetch(wanted, folder)? };
        let manifest = fs::read_to_string(source.join("Cargo.toml"))?;
        let mut manifest: DocumentMut = manifest.parse()?;
        let about = |key: &str| manifest.get("package")?.get(key)?.as_str().map(str::to_owned);
        let name = format!("{} {}", about("name").context("no name")?, about("version").unwrap_or_default());
        let copy = folder.join(name.replace(' ', "-"));
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        for file in files(&source, "**/*")? {
            let to = copy.join(file.strip_prefix(&source)?);
            fs::create_dir_all(to.parent().context("a folder")?)?;
            fs::copy(&file, to)?;
        }
        add_runtime(&mut manifest);
        fs::write(copy.join("Cargo.toml"), manifest.to_string())?;
        let _ = fs::remove_file(copy.join("Cargo.lock"));
        Ok(Self { name, folder: copy, target: folder.join("target"), features: &["--all-features"] })
    }

    /// All source files of the crate, except for the build script, which does not depend on the runtime.
    pub(crate) fn sources(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut sources = files(&self.folder, "**/*.rs")?;
        sources.retain(|path| {
            let inside = path.strip_prefix(&self.folder).unwrap_or(path);
            !["build.rs", "build", "tests", "examples", "benches"].iter().any(|other| inside.starts_with(other))
        });
        Ok(sources)
    }

    /// Some crates have features that exclude each other, or that need another compiler. They are checked with their default features.
    pub(crate) fn check_as_it_is(&mut self) -> anyhow::Result<Said> {
        let said = self.check()?;
        if said.succeeds {
            return Ok(said);
        }
        self.features = &[];
        let said = self.check()?;
        if !said.succeeds {
            bail!("does not compile as it is: {:?}", said.errors.first().map(|error| &error.message));
        }
        Ok(said)
    }

    pub(crate) fn check(&self) -> anyhow::Result<Said> {
        let before = time_of_children()?;
        let mut cargo = Command::new(cargo())
            .args(["check", "--quiet", "--message-format=json"])
            .args(self.features)
            .current_dir(&self.folder)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_INCREMENTAL", "0")
            // Turn lints that a crate denies into warnings, so that the comparison sees all of them.
            .env("RUSTFLAGS", "--cap-lints=warn")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = BufReader::new(cargo.stdout.take().context("a pipe")?);
        let (mut errors, mut warnings) = (Vec::new(), BTreeSet::new());
        for message in Message::parse_stream(output) {
            let Message::CompilerMessage(message) = message? else { continue };
            let said = message.message;
            // The last message of each kind is only a count of the others.
            if !message.target.src_path.as_std_path().starts_with(&self.folder) || said.spans.is_empty() {
                continue;
            }
            match said.level {
                DiagnosticLevel::Warning => {
                    warnings.insert(format!("{}: {}", place(&said), said.message));
                }
                DiagnosticLevel::Error | DiagnosticLevel::Ice => errors.push(said),
                _ => {}
            }
        }
        let succeeds = cargo.wait()?.success();
        Ok(Said { succeeds, errors, warnings, time: time_of_children()?.saturating_sub(before) })
    }
}

/// The place of a message in the crate's own code.
pub(crate) fn place(said: &Diagnostic) -> String {
    let span = said.spans.iter().find(|span| span.is_primary).map(outermost);
    span.map(|span| format!("{}:{}", span.file_name, span.line_start)).unwrap_or_default()
}

/// For code from a macro, the call of the macro.
pub(crate) fn outermost(mut span: &DiagnosticSpan) -> &DiagnosticSpan {
    while let Some(expansion) = &span.expansion {
        span = &expansion.span;
    }
    span
}

fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Makes cargo unpack the crate, with a package that depends on it.
fn fetch(wanted: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let (name, version) = wanted.split_once('@').unwrap_or((wanted, ""));
    let version = if version.is_empty() { "*".to_owned() } else { format!("={version}") };
    let fetching = folder.join("fetching");
    fs::create_dir_all(fetching.join("src"))?;
    fs::write(fetching.join("src/lib.rs"), "")?;
    let manifest = format!(
        "[package]\nname = \"fetching\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n{name} = \"{version}\"\n"
    );
    fs::write(fetching.join("Cargo.toml"), manifest)?;
    let metadata = MetadataCommand::new().current_dir(&fetching).exec()?;
    let is_wanted = |package: &&cargo_metadata::Package| *package.name == *name && package.source.is_some();
    let found = metadata.packages.iter().filter(is_wanted).max_by_key(|package| &package.version);
    let folder = found.and_then(|package| package.manifest_path.parent()).context("cargo did not fetch it")?;
    Ok(folder.into())
}

/// Makes the crate the root of its own workspace, and removes its tests and their dependencies.
fn add_runtime(manifest: &mut DocumentMut) {
    let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lock-runtime");
    manifest.insert("workspace", Item::Table(Table::new()));
    for tests in ["dev-dependencies", "test", "bench", "example"] {
        manifest.remove(tests);
    }
    if let Some(targets) = manifest.get_mut("target").and_then(Item::as_table_like_mut) {
        for (_, target) in targets.iter_mut() {
            if let Some(target) = target.as_table_like_mut() {
                target.remove("dev-dependencies");
            }
        }
    }
    let dependencies = manifest.entry("dependencies").or_insert(Item::Table(Table::new()));
    if let Some(dependencies) = dependencies.as_table_like_mut() {
        let path = InlineTable::from_iter([("path", runtime.to_string_lossy().into_owned())]);
        dependencies.insert("lock-runtime", value(path));
    }
}

fn files(folder: &Path, pattern: &str) -> anyhow::Result<Vec<PathBuf>> {
    let pattern = format!("{}/{pattern}", glob::Pattern::escape(&folder.to_string_lossy()));
    let mut found: Vec<PathBuf> = glob::glob(&pattern)?.collect::<Result<_, _>>()?;
    found.retain(|path| path.is_file());
    Ok(found)
}

/// The kernel's count of the time of all child processes that were awaited, and of their children.
fn time_of_children() -> anyhow::Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u32 = after_name.split_whitespace().skip(13).take(2).map(|ticks| ticks.parse().unwrap_or(0)).sum();
    Ok(TICK * ticks)
}
