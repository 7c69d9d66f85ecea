//! The sites for the attribute in a file, and how to write the file with attributes.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, ItemFn, ItemTrait, Signature, TraitItem, TraitItemFn};

/// What to write on the sites of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Nothing: the original file.
    Plain,
    /// An attribute with an unknown option, which the macro always refuses, together with everything else that it refuses there. This
    /// shows which items are compiled, without errors from an expansion.
    Probe,
    /// The attribute, with `on_fail`, so that any return type works.
    Lock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// An async fn, or a fn that returns a future.
    Async,
    Blocking,
    Trait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Locked,
    Refused,
    /// Not compiled here; or without a body, in a trait that was refused.
    Absent,
}

/// A fn or a trait.
#[derive(Debug)]
pub(crate) struct Site {
    /// The place of the attribute: above all others except `#[cfg]`, which decides whether the item exists.
    place: usize,
    item: Range<usize>,
    pub(crate) kind: Kind,
    /// The index of this method's trait among the sites of the file.
    of_trait: Option<usize>,
    has_body: bool,
    pub(crate) state: State,
}

#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    /// A number for the names of proxies, which must be unique because modules may glob-import each other.
    number: usize,
    text: String,
    pub(crate) sites: Vec<Site>,
}

impl File {
    pub(crate) fn read(number: usize, path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let mut finder = Finder { text: &text, sites: Vec::new(), of_trait: None };
        // Templates, and files that only another compiler can parse, have no sites. Nor do files with a byte order mark, which shifts all
        // places.
        if let Ok(file) = syn::parse_file(&text).with_context(|| path.display().to_string())
            && !text.starts_with('\u{feff}')
        {
            finder.visit_file(&file);
        }
        let sites = finder.sites;
        Ok(Self { path: path.to_owned(), number, text, sites })
    }

    /// Keeps the line numbers, so that messages can be compared.
    pub(crate) fn write(&self, form: Form) -> anyhow::Result<()> {
        let mut text = String::with_capacity(self.text.len() * 2);
        let mut done = 0;
        for (place, attribute) in self.attributes(form) {
            text.push_str(self.text.get(done..place).context("a site within the file")?);
            text.push_str(&attribute);
            done = place;
        }
        text.push_str(self.text.get(done..).context("a site within the file")?);
        std::fs::write(&self.path, text).with_context(|| self.path.display().to_string())
    }

    fn attributes(&self, form: Form) -> Vec<(usize, String)> {
        let options = match form {
            Form::Plain => return Vec::new(),
            Form::Probe => "crater",
            Form::Lock => r#"prefix = "crater", key = 0, on_fail = |error| ::core::panic!("{}", error)"#,
        };
        let locked = self.sites.iter().filter(|site| site.state == State::Locked);
        let attributes = locked.map(|site| {
            let proxy = format!("Crater{}At{}", self.number, site.place);
            let options = match (site.kind, form) {
                (Kind::Trait, Form::Probe) => format!("proxy = {proxy}, {options}"),
                (Kind::Trait, _) => format!("proxy = {proxy}"),
                (_, Form::Probe) => format!("key = 0, on_fail = (), {options}"),
                _ => options.to_owned(),
            };
            (site.place, format!("#[::lock_runtime::cache_lock({options})] "))
        });
        attributes.collect()
    }

    /// The innermost site with an attribute around this byte of the written file.
    pub(crate) fn site_at(&self, form: Form, written: usize) -> Option<usize> {
        let mut before = 0;
        let mut offset = written;
        for (place, attribute) in self.attributes(form) {
            if written < place + before {
                break;
            }
            offset = place.max(written.saturating_sub(before + attribute.len()));
            before += attribute.len();
        }
        let around = self.sites.iter().enumerate().filter(|(_, site)| site.state == State::Locked);
        around.filter(|(_, site)| site.item.contains(&offset)).map(|(index, _)| index).next_back()
    }

    /// Removes an attribute. The methods of a trait without it are fns without a proxy: those with a body become sites again, and are
    /// returned; the others have nothing to lock.
    pub(crate) fn take_away(&mut self, index: usize, state: State) -> Vec<usize> {
        let mut asked_again = Vec::new();
        for (of, site) in self.sites.iter_mut().enumerate() {
            if of == index {
                site.state = state;
            } else if site.of_trait == Some(index) && site.state != State::Absent {
                site.state = if site.has_body { State::Locked } else { State::Absent };
                asked_again.push(of);
            }
        }
        asked_again
    }
}

struct Finder<'a> {
    text: &'a str,
    sites: Vec<Site>,
    of_trait: Option<usize>,
}

impl Finder<'_> {
    fn add(&mut self, item: Range<usize>, attributes: &[Attribute], kind: Kind, has_body: bool) -> usize {
        let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
        let place = conditions.map(|condition| condition.span().byte_range().end).next_back().unwrap_or(item.start);
        self.sites.push(Site { place, item, kind, of_trait: self.of_trait, has_body, state: State::Locked });
        self.sites.len() - 1
    }

    /// `async fn`, `-> impl Future<…>`, `-> Pin<Box<dyn Future<…>>>`, `-> BoxFuture<…>`
    fn kind(&self, signature: &Signature) -> Kind {
        let output = self.text.get(signature.output.span().byte_range());
        let is_async = signature.asyncness.is_some() || output.is_some_and(|output| output.contains("Future"));
        if is_async { Kind::Async } else { Kind::Blocking }
    }

    /// Items inside a fn don't belong to the trait around it.
    fn inside(&mut self, of_trait: Option<usize>, visit: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.of_trait, of_trait);
        visit(self);
        self.of_trait = outer;
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.add(item.span().byte_range(), &item.attrs, self.kind(&item.sig), true);
        self.inside(None, |finder| visit::visit_item_fn(finder, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.add(item.span().byte_range(), &item.attrs, self.kind(&item.sig), true);
        self.inside(None, |finder| visit::visit_impl_item_fn(finder, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        self.add(item.span().byte_range(), &item.attrs, self.kind(&item.sig), item.default.is_some());
        self.inside(None, |finder| visit::visit_trait_item_fn(finder, item));
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        if item.items.iter().any(|item| matches!(item, TraitItem::Fn(_))) {
            let index = self.add(item.span().byte_range(), &item.attrs, Kind::Trait, false);
            self.inside(Some(index), |finder| visit::visit_item_trait(finder, item));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_the_written_file_is_one_in_the_original() {
        let text =
            "/// Über\n#[cfg(all())] #[must_use]\nfn one() { fn two() {} }\ntrait Three { fn four(); fn five() {} }\n";
        let folder = std::env::temp_dir().join(format!("crater-{}", std::process::id()));
        std::fs::write(&folder, text).unwrap();
        let mut file = File::read(7, &folder).unwrap();
        file.write(Form::Lock).unwrap();
        let written = std::fs::read_to_string(&folder).unwrap();
        std::fs::remove_file(&folder).unwrap();
        assert_eq!(written.matches("#[::lock_runtime::cache_lock(").count(), 5);
        assert_eq!(written.lines().count(), text.lines().count());
        assert!(written.contains("#[cfg(all())]#[::lock_runtime::cache_lock(prefix"), "{written}");
        for (index, name) in ["one", "two", "Three", "four", "five"].into_iter().enumerate() {
            let attribute = written.match_indices("#[::").nth(index).unwrap().0;
            assert_eq!(file.site_at(Form::Lock, written.find(name).unwrap()), Some(index), "{name}");
            assert_eq!(file.site_at(Form::Lock, attribute + 5), Some(index), "the attribute of {name}");
        }
        assert_eq!(file.take_away(2, State::Refused), [3, 4]);
        let kept: Vec<_> = file.attributes(Form::Lock).into_iter().map(|(place, _)| place).collect();
        assert_eq!(
            kept,
            ["#[must_use]", "fn two", "fn five"]
                .map(|item| text.find(item).unwrap() - usize::from(item == "#[must_use]"))
        );
    }
}
