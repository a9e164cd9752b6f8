//! A command line as words, which Linux would split alike.
//!
//! A word ends at white space, unless that is between double quotes. A pair of quotes around a
//! whole word is not part of it.
//! Linux: lib/cmdline.c `next_arg` (v6.12), which removes those around a value, too.

/// The words of a text, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    /// The words of `text`.
    pub(crate) const fn of(text: &'a str) -> Self {
        Self { rest: text }
    }

    /// What was not split yet.
    pub(crate) const fn rest(&self) -> &'a str {
        self.rest
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.rest = self.rest.trim_start();
        if self.rest.is_empty() {
            return None;
        }
        let mut in_quotes = false;
        let end = self.rest.find(|c: char| {
            in_quotes ^= c == '"';
            c.is_whitespace() && !in_quotes
        });
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        Some(match word.strip_prefix('"') {
            Some(inner) => inner.strip_suffix('"').unwrap_or(inner),
            None => word,
        })
    }
}
