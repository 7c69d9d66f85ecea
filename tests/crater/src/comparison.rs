//! Checks a crate without the attribute, and with it on all sites.

use std::collections::BTreeMap;
use std::time::Duration;

use cargo_metadata::diagnostic::{Diagnostic, DiagnosticSpan};

use crate::package::{Package, Said, outermost, place};
use crate::sites::{File, Form, Kind, State};

/// The number of timed checks; the fastest counts.
const CHECKS: usize = 2;
/// The most rounds: the compiler reports errors in phases, and each phase may reveal more.
const MOST_ROUNDS: usize = 25;

pub(crate) struct Comparison {
    /// The crate and its version.
    pub(crate) name: String,
    /// The sites that have the attribute at the end.
    pub(crate) locked: BTreeMap<Kind, usize>,
    /// The refusals: by whom, why, and where.
    pub(crate) refused: BTreeMap<Class, Vec<String>>,
    /// The compiler's errors that are left when they point at no site with the attribute.
    pub(crate) errors: Vec<String>,
    pub(crate) new_warnings: Vec<String>,
    pub(crate) lost_warnings: Vec<String>,
    pub(crate) time_before: Duration,
    pub(crate) time_after: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// The macro's own error.
    Macro(String),
    /// A later error, in the types and lifetimes of the expansion.
    Compiler(String),
}

/// Errors that the runtime causes on purpose, where the macro only sees a name.
const MEANT: [&str; 1] = ["this fn returns a future"];

/// A file, and a site in it.
type Place = (usize, usize);

impl Comparison {
    pub(crate) fn of(mut package: Package) -> anyhow::Result<Self> {
        let first = package.check_as_it_is()?;
        let sources = package.sources()?;
        let files = sources.iter().enumerate().map(|(number, path)| File::read(number, path));
        let mut attributed = Attributed { package, files: files.collect::<Result<_, _>>()?, refused: BTreeMap::new() };
        let (before, time_before) = attributed.repeat(Form::Plain, first)?;
        attributed.probe()?;
        let last = attributed.lock()?;
        let (after, time_after) = attributed.repeat(Form::Lock, last)?;
        let (mut locked, mut refused) = (BTreeMap::new(), BTreeMap::<_, Vec<_>>::new());
        for site in attributed.files.iter().flat_map(|file| &file.sites).filter(|site| site.state == State::Locked) {
            *locked.entry(site.kind).or_default() += 1;
        }
        for (class, place) in attributed.refused.into_values() {
            refused.entry(class).or_default().push(place);
        }
        Ok(Self {
            name: attributed.package.name,
            locked,
            refused,
            errors: after.errors.iter().map(|error| format!("{}: {}", place(error), error.message)).collect(),
            new_warnings: after.warnings.difference(&before.warnings).cloned().collect(),
            lost_warnings: before.warnings.difference(&after.warnings).cloned().collect(),
            time_before,
            time_after,
        })
    }
}

/// A crate with attributes, and the refusals so far.
struct Attributed {
    package: Package,
    files: Vec<File>,
    /// The reason, and the file and line.
    refused: BTreeMap<Place, (Class, String)>,
}

impl Attributed {
    fn check(&self, form: Form) -> anyhow::Result<Said> {
        self.files.iter().try_for_each(|file| file.write(form))?;
        self.package.check()
    }

    /// Repeats a check; returns the last result, and the least time.
    fn repeat(&self, form: Form, mut said: Said) -> anyhow::Result<(Said, Duration)> {
        let mut least = said.time;
        for _ in 1..CHECKS {
            said = self.check(form)?;
            // The very first check also compiled the dependencies.
            least = least.min(said.time);
        }
        Ok((said, least))
    }

    /// Removes sites until the macro refuses none.
    fn probe(&mut self) -> anyhow::Result<()> {
        for _ in 0..MOST_ROUNDS {
            let said = self.check(Form::Probe)?;
            let of_macro = said.errors.iter().filter(|error| error.code.is_none());
            let (seen, refusals): (Vec<_>, Vec<_>) =
                of_macro.partition(|error| error.message.starts_with("unknown option `crater`"));
            let seen: Vec<_> = seen.into_iter().filter_map(|error| self.site(Form::Probe, error)).collect();
            let is_over = !self.refuse(Form::Probe, refusals.into_iter(), Class::Macro);
            if is_over {
                self.keep(&seen);
                break;
            }
        }
        Ok(())
    }

    /// Drops the sites that the macro has not seen, because they are not compiled here.
    fn keep(&mut self, seen: &[Place]) {
        for (number, file) in self.files.iter_mut().enumerate() {
            for index in 0..file.sites.len() {
                let is_locked = file.sites.get(index).is_some_and(|site| site.state == State::Locked);
                if is_locked && !seen.contains(&(number, index)) {
                    file.take_away(index, State::Absent);
                }
            }
        }
    }

    /// Removes the attributes that the compiler's errors point at, until there are no such errors.
    fn lock(&mut self) -> anyhow::Result<Said> {
        let is_meant = |words: &str| MEANT.iter().any(|meant| words.contains(meant));
        let class = |words: String| if is_meant(&words) { Class::Macro(words) } else { Class::Compiler(words) };
        let mut said = self.check(Form::Lock)?;
        for _ in 0..MOST_ROUNDS {
            // Handle intended errors first, because other errors may follow from them.
            said.errors.sort_by_key(|error| !is_meant(&error.message));
            if !self.refuse(Form::Lock, said.errors.iter(), class) {
                break;
            }
            said = self.check(Form::Lock)?;
        }
        Ok(said)
    }

    /// Whether one of these errors is about a site with an attribute.
    fn refuse<'a>(
        &mut self,
        form: Form,
        errors: impl Iterator<Item = &'a Diagnostic>,
        class: impl Fn(String) -> Class,
    ) -> bool {
        // Look up all sites first: removing an attribute moves the others.
        let found: Vec<_> = errors.filter_map(|error| Some((self.site(form, error)?, error))).collect();
        for (site, error) in &found {
            let Some(file) = self.files.get_mut(site.0) else { continue };
            if file.sites.get(site.1).is_some_and(|site| site.state == State::Locked) {
                let mut reason = (class(words(error)), place(error));
                for method in file.take_away(site.1, State::Refused) {
                    // If no method of a trait is locked, that follows from earlier refusals.
                    if let Some(of_method) = self.refused.remove(&(site.0, method))
                        && error.message.starts_with("no method of this trait is locked")
                    {
                        reason = of_method;
                    }
                }
                self.refused.insert(*site, reason);
            }
        }
        !found.is_empty()
    }

    /// The site of an error: the innermost around its primary span, or else around its other spans.
    fn site(&self, form: Form, error: &Diagnostic) -> Option<Place> {
        let notes = error.children.iter().flat_map(|note| &note.spans);
        let mut spans: Vec<_> = error.spans.iter().chain(notes).collect();
        spans.sort_by_key(|span| !span.is_primary);
        spans.into_iter().find_map(|span| self.site_of_span(form, span))
    }

    fn site_of_span(&self, form: Form, span: &DiagnosticSpan) -> Option<Place> {
        let span = outermost(span);
        let path = self.package.folder.join(&span.file_name);
        let number = self.files.iter().position(|file| file.path == path)?;
        let offset = usize::try_from(span.byte_start).ok()?;
        self.files.get(number)?.site_at(form, offset).map(|index| (number, index))
    }
}

/// The first words of a message, without names, as its class.
fn words(error: &Diagnostic) -> String {
    let code = error.code.as_ref().map(|code| format!("{}: ", code.code)).unwrap_or_default();
    let line = error.message.lines().next().unwrap_or_default();
    let without_names: String =
        line.split('`').enumerate().map(|(part, text)| if part % 2 == 0 { text } else { "…" }).collect();
    let first = without_names.split([':', ';', ',']).next().unwrap_or_default();
    format!("{code}{first}")
}
