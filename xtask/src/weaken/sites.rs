//! The orderings that name a pair, and what each can be weakened to.

use crate::tidy::{RustSource, after_closing, is_ident, pairs_by_line};
use std::collections::BTreeMap;

/// Orderings that order something.
const STRONG: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];
/// How an ordering is written in code.
const PREFIX: &str = "Ordering::";

/// What an ordering belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Load,
    Store,
    /// An exchange, or anything else that reads and writes.
    Rmw,
    Fence,
    /// Orders nothing between CPUs, so that no model can miss it.
    CompilerFence,
}

/// One ordering.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Site {
    /// Below `crates/sync/src`.
    pub(super) file: String,
    /// Counted from 1.
    pub(super) line: usize,
    /// The function it is in.
    pub(super) function: String,
    /// Which one of that function, counted from 1.
    pub(super) ordinal: usize,
    pub(super) pairs: Vec<String>,
    pub(super) operation: Operation,
    pub(super) order: String,
    /// Where `Ordering::` begins, in characters.
    at: usize,
}

impl Site {
    /// What it is weakened to, each list from the weakest change on: what fails for one fails for
    /// those behind it.
    pub(super) fn weaker(&self) -> Vec<Vec<&'static str>> {
        use Operation::{CompilerFence, Fence, Load, Rmw, Store};
        match (self.operation, self.order.as_str()) {
            (Fence, "SeqCst") => vec![vec!["AcqRel", "Removed"]],
            (Fence, "AcqRel") => vec![vec!["Acquire"], vec!["Release"]],
            (Fence | CompilerFence, _) => vec![vec!["Removed"]],
            (Load, "SeqCst") => vec![vec!["Acquire", "Relaxed"]],
            (Store, "SeqCst") => vec![vec!["Release", "Relaxed"]],
            (Rmw, "SeqCst") => vec![vec!["AcqRel", "Relaxed"]],
            (_, "AcqRel") => vec![vec!["Acquire"], vec!["Release"]],
            _ => vec![vec!["Relaxed"]],
        }
    }
}

/// The orderings of `source` below an ORDERING comment with a pair, in the order of the file.
/// `file` is what it is called in a report.
pub(super) fn find(source: &RustSource, file: &str) -> Vec<Site> {
    let code: Vec<char> = source.code().join("\n").chars().collect();
    let starts = line_starts(&code);
    let mut pairs_at: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (line, pairs) in pairs_by_line(source) {
        let Some(start) = first_code(&code, starts[line - 1]) else {
            continue;
        };
        for at in strong_of_statement(&code, start) {
            pairs_at
                .entry(at)
                .or_default()
                .extend(pairs.iter().cloned());
        }
    }
    let mut sites: Vec<Site> = Vec::new();
    for (at, pairs) in pairs_at {
        let function = function_at(&code, at);
        let here = sites.iter().filter(|site| site.function == function);
        sites.push(Site {
            file: file.to_owned(),
            line: starts.partition_point(|start| *start <= at),
            ordinal: here.count() + 1,
            function,
            pairs,
            operation: operation_at(&code, at),
            order: word_at(&code, at + PREFIX.len()),
            at,
        });
    }
    sites
}

/// `text` with each of its orderings asking `crate::weaken`; they are numbered from `first` on.
pub(super) fn rewrite(text: &str, sites: &[Site], first: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::new();
    let mut done = 0;
    for (number, site) in (first..).zip(sites) {
        if site.operation == Operation::CompilerFence {
            continue;
        }
        let end = site.at + PREFIX.len() + site.order.len();
        let word: String = chars[site.at..end].iter().collect();
        if site.operation == Operation::Fence {
            // `M::fence(` stands before it.
            let call = site.at - "M::fence(".len();
            out.extend(&chars[done..call]);
            out.push_str(&format!("crate::weaken::fence::<M>({number}, {word}"));
        } else {
            out.extend(&chars[done..site.at]);
            out.push_str(&format!("crate::weaken::at({number}, {word})"));
        }
        done = end;
    }
    out.extend(&chars[done..]);
    out
}

/// The offset at which each line begins.
fn line_starts(code: &[char]) -> Vec<usize> {
    let ends = code.iter().enumerate().filter(|(_, c)| **c == '\n');
    core::iter::once(0)
        .chain(ends.map(|(at, _)| at + 1))
        .collect()
}

fn first_code(code: &[char], from: usize) -> Option<usize> {
    let found = code[from..].iter().position(|c| !c.is_whitespace());
    found.map(|at| from + at)
}

/// The strong orderings of the first call, from `start` on, that has any.
fn strong_of_statement(code: &[char], start: usize) -> Vec<usize> {
    let Some(first) = (start..code.len()).find(|at| is_strong(code, *at)) else {
        return Vec::new();
    };
    let Some(open) = open_before(code, first) else {
        return vec![first];
    };
    let end = after_closing(code, open);
    (first..end).filter(|at| is_strong(code, *at)).collect()
}

fn is_strong(code: &[char], at: usize) -> bool {
    starts_with(code, at, PREFIX) && STRONG.contains(&&*word_at(code, at + PREFIX.len()))
}

fn starts_with(code: &[char], at: usize, word: &str) -> bool {
    let here = code[at..].iter().copied().take(word.len());
    word.chars().eq(here) && !(at > 0 && is_ident(code[at - 1]))
}

fn word_at(code: &[char], at: usize) -> String {
    code[at..].iter().take_while(|c| is_ident(**c)).collect()
}

/// The bracket that is open at `at`.
fn open_before(code: &[char], at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for back in (0..at).rev() {
        match code[back] {
            ')' | ']' | '}' => depth += 1,
            '(' | '[' | '{' if depth == 0 => return Some(back),
            '(' | '[' | '{' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn operation_at(code: &[char], at: usize) -> Operation {
    let before: String = match open_before(code, at) {
        Some(open) => code[..open].iter().rev().take(60).collect(),
        None => String::new(),
    };
    let before: String = before.chars().rev().collect();
    let before = match before.rsplit_once("::<") {
        Some((name, generics)) if generics.ends_with('>') => name,
        _ => &before,
    };
    let name: Vec<char> = before.chars().rev().take_while(|c| is_ident(*c)).collect();
    let name: String = name.into_iter().rev().collect();
    match name.as_str() {
        "load" => Operation::Load,
        "store" => Operation::Store,
        "fence" => Operation::Fence,
        "compiler_fence" => Operation::CompilerFence,
        _ => Operation::Rmw,
    }
}

/// The name of the function that begins last before `at`.
fn function_at(code: &[char], at: usize) -> String {
    let named = |from: usize| starts_with(code, from, "fn ") && is_ident(code[from + 3]);
    let from = (0..at.saturating_sub(3)).rev().find(|from| named(*from));
    from.map_or_else(String::new, |from| word_at(code, from + 3))
}

#[cfg(test)]
mod tests {
    use super::{Operation, find, rewrite};
    use crate::tidy::RustSource;

    const TEXT: &str = "\
fn one(&self) {
    // ORDERING: SeqCst; pairs with [a-b]: because Ordering::SeqCst
    // is strong.
    self.word.add(1, Ordering::SeqCst);
    self.word.load(Ordering::Relaxed);
    // ORDERING: fence SeqCst; pairs with [a-b] and [c-d].
    M::fence(Ordering::SeqCst);
}
fn two(&self) {
    match self.word.load(Ordering::Relaxed) {
        // ORDERING: Acquire; pairs with [c-d].
        _ => self
            .word
            .cas(1, f(2), Ordering::AcqRel, Ordering::Acquire),
    }
    M::load::<u64>(&node.granted, Ordering::Acquire); // ORDERING: Acquire; pairs with [a-b].
    // ORDERING: Relaxed, a counter.
    self.word.store(1, Ordering::Release);
}
";

    fn source() -> RustSource {
        RustSource::new("crates/sync/src/x.rs".to_owned(), TEXT.to_owned())
    }

    #[test]
    fn each_ordering_of_a_pair_is_found_with_its_place() {
        let sites = find(&source(), "x.rs");
        let seen: Vec<_> = sites
            .iter()
            .map(|it| {
                let place = (it.line, it.function.as_str(), it.ordinal);
                (place, it.operation, it.order.as_str(), it.pairs.len())
            })
            .collect();
        assert_eq!(
            seen,
            [
                ((4, "one", 1), Operation::Rmw, "SeqCst", 1),
                ((7, "one", 2), Operation::Fence, "SeqCst", 2),
                ((14, "two", 1), Operation::Rmw, "AcqRel", 1),
                ((14, "two", 2), Operation::Rmw, "Acquire", 1),
                ((16, "two", 3), Operation::Load, "Acquire", 1),
            ]
        );
        assert_eq!(sites[0].weaker(), [["AcqRel", "Relaxed"]]);
        assert_eq!(sites[1].weaker(), [["AcqRel", "Removed"]]);
        assert_eq!(sites[2].weaker(), [["Acquire"], ["Release"]]);
        assert_eq!(sites[4].weaker(), [["Relaxed"]]);
    }

    #[test]
    fn the_copy_asks_for_each_of_them_and_is_the_same_otherwise() {
        let copy = rewrite(TEXT, &find(&source(), "x.rs"), 7);
        let undone = copy
            .replace(
                "crate::weaken::fence::<M>(8, Ordering::SeqCst)",
                "M::fence(Ordering::SeqCst)",
            )
            .replace("crate::weaken::at(7, Ordering::SeqCst)", "Ordering::SeqCst")
            .replace("crate::weaken::at(9, Ordering::AcqRel)", "Ordering::AcqRel")
            .replace(
                "crate::weaken::at(10, Ordering::Acquire)",
                "Ordering::Acquire",
            )
            .replace(
                "crate::weaken::at(11, Ordering::Acquire)",
                "Ordering::Acquire",
            );
        assert_eq!(undone, TEXT);
        assert_eq!(copy.matches("crate::weaken::").count(), 5);
    }
}
