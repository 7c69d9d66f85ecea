//! `#[cache_lock(...)]` on a fn, an `impl` block or a trait: what was written ([`parse`]), what it means ([`model`]), what it becomes
//! ([`expand`]).

use proc_macro2::TokenStream;
use quote::quote;

use crate::mistakes::Mistakes;
use model::Proxy;
use parse::{Block, Function, Interface, Item, Written};

mod expand;
mod model;
mod parse;

/// The attribute as a pure function. It never panics. On a mistake it emits the item unchanged, so callers and editors keep working.
pub(crate) fn expansion(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut mistakes = Mistakes::default();
    let written = parse::options(options, &mut mistakes);
    let read = parse::item(item.clone(), &mut mistakes);
    match mistakes.ok(read) {
        None => item.into_iter().chain(mistakes.into_compile_errors()).collect(),
        Some(Item::Function(function)) => of_function(written, &function, mistakes),
        Some(Item::Block(block)) => of_block(written, &block, mistakes),
        Some(Item::Interface(interface)) => of_interface(written, &interface, mistakes),
        Some(Item::AboveAsyncTrait(mut above)) => {
            model::check_mock_comes_last(&mut above, &mut mistakes);
            let item = expand::below(&above, &model::runtime_of(&written), &written);
            let errors = mistakes.into_compile_errors();
            quote!(#item #errors)
        }
    }
}

fn of_function(written: Vec<Written>, function: &Function, mut mistakes: Mistakes) -> TokenStream {
    match model::model(written, function, &mut mistakes) {
        Some(lock) if mistakes.is_empty() => expand::expand(&lock, function),
        _ => {
            let errors = mistakes.into_compile_errors();
            // An argument that only the options use counts as used.
            quote!(#[allow(unused_variables)] #function #errors)
        }
    }
}

/// Copies the options to the fns of the block, which are expanded later.
fn of_block(written: Vec<Written>, block: &Block, mut mistakes: Mistakes) -> TokenStream {
    let inherited = model::of_block(written, block, &mut mistakes);
    let mut of_fns = block.options_of_fns().into_iter();
    let block = block.with_options(|own| {
        let inherited = model::beside(&of_fns.next().unwrap_or_default(), &inherited);
        expand::with_inherited(own, &inherited)
    });
    let errors = mistakes.into_compile_errors();
    quote!(#block #errors)
}

/// A mistake still emits a proxy, which locks nothing: code that names it compiles.
fn of_interface(written: Vec<Written>, interface: &Interface, mut mistakes: Mistakes) -> TokenStream {
    let mut proxy = model::proxy(written, interface, &mut mistakes);
    if !mistakes.is_empty() {
        proxy.iter_mut().for_each(Proxy::remove_locks);
    }
    let proxy = proxy.map(|proxy| expand::proxy(&proxy, interface));
    let definition = &interface.definition;
    let errors = mistakes.into_compile_errors();
    quote!(#definition #proxy #errors)
}
