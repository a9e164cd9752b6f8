//! A Rust file seen three ways: its code, its comments, and its code without tests.
//!
//! Each view keeps the lines and columns of the file; what does not belong to it is blank. A word
//! in a string or a comment is thus never taken for code.

/// What a character of a file belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Code,
    Comment,
    /// Within the quotes of a string or character literal.
    Literal,
}

/// A Rust file and its views, one string a line.
#[derive(Debug)]
pub(crate) struct RustSource {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    /// The lines as they are.
    pub(super) lines: Vec<String>,
    /// The length of each line, literals left out.
    pub(super) columns: Vec<usize>,
    code: Vec<String>,
    comments: Vec<String>,
    production: Vec<String>,
}

impl RustSource {
    pub(crate) fn new(path: String, text: String) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let kinds = classify(&chars);
        let code: Vec<char> = keep(&chars, &kinds, Kind::Code);
        let mut production = code.clone();
        if is_test_path(&path) {
            blank(&mut production, 0, code.len());
        } else {
            for (start, end) in test_items(&code) {
                blank(&mut production, start, end);
            }
        }
        Self {
            path,
            lines: text.lines().map(str::to_owned).collect(),
            columns: columns(&chars, &kinds),
            code: lines(&code),
            comments: lines(&keep(&chars, &kinds, Kind::Comment)),
            production: lines(&production),
        }
    }

    /// The code; comments and the contents of literals are blank.
    pub(crate) fn code(&self) -> &[String] {
        &self.code
    }

    /// The comments, slashes included.
    pub(super) fn comments(&self) -> &[String] {
        &self.comments
    }

    /// The code outside `#[cfg(test)]` items and test files.
    pub(super) fn production(&self) -> &[String] {
        &self.production
    }

    /// Blanks the whole file in [`Self::production`].
    pub(super) fn mark_as_test(&mut self) {
        self.production.iter_mut().for_each(String::clear);
    }

    /// The module paths (file names without `.rs`) declared by `#[cfg(test)] mod name;` here.
    pub(super) fn test_module_paths(&self) -> Vec<String> {
        let stem = self.path.trim_end_matches(".rs");
        let folder = match stem.rsplit_once('/') {
            Some((folder, "lib" | "main" | "mod")) => folder,
            _ => stem,
        };
        let code: Vec<char> = self.code.join("\n").chars().collect();
        let declared = test_items(&code).into_iter().filter_map(|(start, end)| {
            let item: String = code[start..end].iter().collect();
            let (_, rest) = item.split_once("mod ")?;
            Some(rest.trim().strip_suffix(';')?.trim().to_owned())
        });
        declared.map(|name| format!("{folder}/{name}")).collect()
    }
}

/// Whether `line` holds `word` with no identifier character on either side.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    word_positions(line, word).next().is_some()
}

/// The byte offsets of `word` in `line`, as a word of its own.
pub(super) fn word_positions<'a>(line: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    line.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| {
            let before = line[..at].chars().next_back();
            let after = line[at + word.len()..].chars().next();
            !before.is_some_and(is_ident) && !after.is_some_and(is_ident)
        })
}

pub(crate) fn is_ident(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The offset just past the bracket that closes the one at `open`, or the end of `text`.
pub(crate) fn after_closing(text: &[char], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, c) in text.iter().enumerate().skip(open) {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

fn is_test_path(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.any(|part| matches!(part, "tests" | "benches" | "examples" | "tests.rs"))
        || path.ends_with("_tests.rs")
}

fn lines(text: &[char]) -> Vec<String> {
    let text: String = text.iter().collect();
    text.lines().map(str::to_owned).collect()
}

fn columns(chars: &[char], kinds: &[Kind]) -> Vec<usize> {
    let pairs: Vec<(&char, &Kind)> = chars.iter().zip(kinds).collect();
    let counted = |line: &[(&char, &Kind)]| {
        line.iter()
            .filter(|(_, kind)| **kind != Kind::Literal)
            .count()
    };
    pairs.split(|(c, _)| **c == '\n').map(counted).collect()
}

fn keep(chars: &[char], kinds: &[Kind], wanted: Kind) -> Vec<char> {
    let pairs = chars.iter().zip(kinds);
    pairs
        .map(|(&c, &kind)| if kind == wanted || c == '\n' { c } else { ' ' })
        .collect()
}

fn blank(text: &mut [char], start: usize, end: usize) {
    for c in &mut text[start..end] {
        if *c != '\n' {
            *c = ' ';
        }
    }
}

/// Says of each character what it belongs to.
fn classify(chars: &[char]) -> Vec<Kind> {
    let mut kinds = vec![Kind::Code; chars.len()];
    let mut at = 0;
    while at < chars.len() {
        let (kind, end) = match (chars[at], chars.get(at + 1)) {
            ('/', Some('/')) => (Kind::Comment, until_newline(chars, at)),
            ('/', Some('*')) => (Kind::Comment, after_block_comment(chars, at)),
            ('"', _) => (Kind::Literal, after_string(chars, at)),
            ('r', Some('"' | '#')) if may_prefix(chars, at) => match after_raw_string(chars, at) {
                Some(end) => (Kind::Literal, end),
                None => (Kind::Code, at + 1),
            },
            ('\'', _) => match after_char(chars, at) {
                Some(end) => (Kind::Literal, end),
                None => (Kind::Code, at + 1),
            },
            _ => (Kind::Code, at + 1),
        };
        kinds[at..end].fill(kind);
        if kind == Kind::Literal {
            // The quotes stay code, so that an expression still looks like one.
            kinds[at] = Kind::Code;
            kinds[end - 1] = Kind::Code;
        }
        at = end;
    }
    kinds
}

fn until_newline(chars: &[char], at: usize) -> usize {
    chars[at..]
        .iter()
        .position(|&c| c == '\n')
        .map_or(chars.len(), |n| at + n)
}

fn after_block_comment(chars: &[char], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => (depth, at) = (depth + 1, at + 2),
            ('*', '/') => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn after_string(chars: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// Whether the `r` at `at` starts a raw string rather than ending a name. `br` and `cr` do too.
fn may_prefix(chars: &[char], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).map(|i| chars[i]);
    match before(1) {
        Some('b' | 'c') => !before(2).is_some_and(is_ident),
        Some(c) => !is_ident(c),
        None => true,
    }
}

fn after_raw_string(chars: &[char], start: usize) -> Option<usize> {
    let hashes = chars[start + 1..].iter().take_while(|&&c| c == '#').count();
    let open = start + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None; // a raw identifier
    }
    let closes = |at: usize| {
        chars[at] == '"' && chars[at + 1..].iter().take_while(|&&c| c == '#').count() >= hashes
    };
    let end = (open + 1..chars.len()).find(|&at| closes(at));
    Some(end.map_or(chars.len(), |at| at + 1 + hashes))
}

/// The end of the character literal at `at`, or `None` when a lifetime starts there.
fn after_char(chars: &[char], at: usize) -> Option<usize> {
    if chars.get(at + 1) == Some(&'\\') {
        let close = chars.iter().skip(at + 3).position(|&c| c == '\'')?;
        return Some(at + 3 + close + 1);
    }
    (chars.get(at + 2) == Some(&'\'')).then_some(at + 3)
}

/// The parts of `code` under a `#[cfg(test)]` or `#[cfg(all(test, ...))]`, attribute included.
fn test_items(code: &[char]) -> Vec<(usize, usize)> {
    const ATTRIBUTES: [&str; 2] = ["#[cfg(test)", "#[cfg(all(test"];
    let mut items = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let starts = |word: &str| word.chars().eq(code[at..].iter().copied().take(word.len()));
        if code[at] != '#' || !ATTRIBUTES.iter().any(|word| starts(word)) {
            at += 1;
            continue;
        }
        let end = item_end(code, at);
        items.push((at, end));
        at = end;
    }
    items
}

/// The end of the item whose first attribute starts at `at`.
fn item_end(code: &[char], mut at: usize) -> usize {
    loop {
        while code.get(at).is_some_and(|c| c.is_whitespace()) {
            at += 1;
        }
        if code.get(at) != Some(&'#') {
            break;
        }
        at = after_closing(code, at + 1);
    }
    // A comma ends a field, a variant or an argument; the generics of an item hold commas, too.
    let first: String = code[at..].iter().take_while(|&&c| is_ident(c)).collect();
    let item = [
        "mod", "fn", "pub", "impl", "struct", "enum", "trait", "use", "const", "static",
    ];
    let other = [
        "unsafe",
        "type",
        "extern",
        "macro_rules",
        "async",
        "let",
        "union",
    ];
    let comma_ends = !item.contains(&first.as_str()) && !other.contains(&first.as_str());
    while let Some(&c) = code.get(at) {
        match c {
            ';' => return at + 1,
            ',' if comma_ends => return at + 1,
            '{' => return after_closing(code, at),
            '(' | '[' => at = after_closing(code, at),
            ')' | ']' | '}' => return at,
            _ => at += 1,
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::{RustSource, has_word};

    fn source(text: &str) -> RustSource {
        RustSource::new("crates/mm/src/x.rs".to_owned(), text.to_owned())
    }

    #[test]
    fn words_in_strings_and_comments_are_not_code() {
        let seen = source(concat!(
            "let a = \"unsafe\"; // unsafe\n",
            "let b = r#\"unsafe \" unsafe\"#; /* a /* unsafe */ unsafe */\n",
            "let c = ('\"', b'\\'', 'x', '\\u{1}'); fn f<'unsafe_>() {}\n",
            "let r#type = \"\\\" unsafe\";\n",
        ));
        assert!(
            seen.code().iter().all(|line| !has_word(line, "unsafe")),
            "{:?}",
            seen.code()
        );
        assert!(seen.code()[2].contains("fn f<'unsafe_>() {}"));
        assert!(seen.comments()[0].contains("// unsafe"));
        assert!(seen.code()[3].starts_with("let r#type = "));
    }

    #[test]
    fn items_for_tests_are_cut_and_the_rest_stays() {
        let seen = source(concat!(
            "static A: u8 = 0;\n",
            "#[cfg(test)]\n#[derive(Debug)]\nstruct B<T, U> { t: [T; 2], u: U }\n",
            "static C: u8 = 0;\n",
            "struct D { #[cfg(test)] e: u8, f: u8 }\n",
            "#[cfg(all(test, not(loom)))]\nmod tests { static G: u8 = 0; }\n",
            "#[cfg(not(test))] static H: u8 = 0;\n",
        ));
        let left = seen.production().join("\n");
        for kept in ["static A", "static C", "f: u8", "static H"] {
            assert!(left.contains(kept), "{kept} is gone from {left}");
        }
        for cut in ["struct B", "e: u8", "static G"] {
            assert!(!left.contains(cut), "{cut} is still in {left}");
        }
    }

    #[test]
    fn files_of_tests_hold_no_production_code() {
        for path in [
            "crates/mm/tests/a.rs",
            "crates/mm/src/space/tree/tests.rs",
            "tests/boot.rs",
        ] {
            let seen = RustSource::new(path.to_owned(), "static A: u8 = 0;\n".to_owned());
            assert_eq!(seen.production()[0].trim(), "", "{path}");
        }
    }
}
