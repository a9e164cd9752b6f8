//! One bad input or abnormal ending: what is run, and what has to come of it.

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// A command line as a shell reads it, in a folder of its own.
    pub(crate) line: &'static str,
    /// What is in the folder before; none of it may change.
    pub(crate) given: &'static [(&'static str, Given)],
    /// The exit status; of a program that a signal ended, as shells have it.
    pub(crate) status: i32,
    /// What the one line on standard error contains: what is wrong, and what would be right. If
    /// there is nothing, nothing may be said.
    pub(crate) says: &'static [&'static str],
    /// What standard output contains. If there is nothing, nothing may be printed.
    pub(crate) prints: &'static [&'static str],
    /// Files that are there afterwards and have content; no others may be new.
    pub(crate) leaves: &'static [&'static str],
    /// What is done to the program while it runs.
    pub(crate) meanwhile: Meanwhile,
    /// A program that the row needs.
    pub(crate) needs: Option<&'static str>,
}

/// What is in a row's folder.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Given {
    Bytes(&'static [u8]),
    Folder,
    /// The machine file of kvm16, under the name `mine`, with one text replaced.
    Machine(&'static str, &'static str),
    /// Four measured rows, with one text replaced.
    Rows(&'static str, &'static str),
    /// A file of that many bytes.
    Zeros(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meanwhile {
    Nothing,
    /// This signal is sent as soon as something was printed.
    Signal(&'static str),
    /// The same, after some milliseconds.
    SignalAfter(&'static str, u64),
    /// The reader of standard output leaves at once.
    ReaderLeaves,
}

/// A command line that asks for what is not there.
pub(crate) const fn usage(
    name: &'static str,
    line: &'static str,
    says: &'static [&'static str],
) -> Row {
    Row {
        name,
        line,
        given: &[],
        status: 2,
        says,
        prints: &[],
        leaves: &[],
        meanwhile: Meanwhile::Nothing,
        needs: None,
    }
}

/// A run that fails.
pub(crate) const fn fails(
    name: &'static str,
    line: &'static str,
    says: &'static [&'static str],
) -> Row {
    Row {
        status: 1,
        ..usage(name, line, says)
    }
}

/// A run that ends well all the same.
pub(crate) const fn ends_well(
    name: &'static str,
    line: &'static str,
    prints: &'static [&'static str],
) -> Row {
    Row {
        status: 0,
        prints,
        ..usage(name, line, &[])
    }
}

impl Row {
    pub(crate) const fn given(self, given: &'static [(&'static str, Given)]) -> Self {
        Self { given, ..self }
    }

    pub(crate) const fn leaves(self, leaves: &'static [&'static str]) -> Self {
        Self { leaves, ..self }
    }

    pub(crate) const fn prints(self, prints: &'static [&'static str]) -> Self {
        Self { prints, ..self }
    }

    pub(crate) const fn meanwhile(self, meanwhile: Meanwhile) -> Self {
        Self { meanwhile, ..self }
    }

    pub(crate) const fn status(self, status: i32) -> Self {
        Self { status, ..self }
    }

    pub(crate) const fn needs(self, program: &'static str) -> Self {
        Self {
            needs: Some(program),
            ..self
        }
    }
}
