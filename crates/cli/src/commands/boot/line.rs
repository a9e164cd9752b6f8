//! A kernel's command line: its own options, the program, and after `--` the program's arguments.

use super::{INIT, Kernel};
use crate::error::{Error, usage};

/// The longest command line that both kernels take.
/// Linux: arch/x86/include/asm/setup.h `COMMAND_LINE_SIZE`, with the zero at its end.
const LONGEST: usize = 2047;
/// The most arguments. Linux: init/main.c `MAX_INIT_ARGS`, less process 1 and the program.
const ARGUMENTS: usize = 30;

/// Options of a Linux that runs one program and says as little as possible, on the second port.
/// A panic ends the machine.
const LINUX: &str = "console=ttyS1 quiet loglevel=1 panic=-1 transparent_hugepage=never";

/// Whether a name can stand in a command line as it is.
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_graphic() && c != '"')
}

/// The command line of a kernel that is to run the program at `path` with these arguments.
pub(super) fn of(
    kernel: &Kernel,
    era: Option<&str>,
    append: &[String],
    path: &str,
    arguments: &[&str],
) -> Result<String, Error> {
    if arguments.len() > ARGUMENTS {
        return Err(usage(format!(
            "boot: {} arguments; a kernel passes on at most {ARGUMENTS}",
            arguments.len()
        )));
    }
    let mut own = String::new();
    for word in append {
        if !is_plain(word) || word == "--" || word.starts_with("rdinit=") {
            return Err(usage(format!(
                "--append {word:?}: a word of the kernel's command line, other than rdinit= and --"
            )));
        }
        own += &format!("{word} ");
    }
    let mut line = match kernel {
        Kernel::Minflt | Kernel::Image(_) => {
            let era = era.map(|era| format!("era={era} ")).unwrap_or_default();
            format!("{era}{own}rdinit={path} --")
        }
        Kernel::Linux(_) => format!("{LINUX} {own}rdinit={INIT} -- {path}"),
    };
    for argument in arguments {
        let known = argument.chars().all(|c| c == ' ' || c.is_ascii_graphic());
        if !known || argument.contains('"') {
            return Err(usage(format!(
                "boot: the argument {argument:?} cannot stand in a kernel's command line; use \
                 printable ASCII without quotes"
            )));
        }
        if *argument == "--" && matches!(kernel, Kernel::Linux(_)) {
            return Err(usage(
                "boot: a Linux kernel passes on nothing after a second --; use another argument",
            ));
        }
        if is_plain(argument) {
            line += &format!(" {argument}");
        } else {
            line += &format!(" \"{argument}\"");
        }
    }
    if line.len() > LONGEST {
        return Err(usage(format!(
            "boot: a command line of {} bytes; a kernel takes at most {LONGEST}",
            line.len()
        )));
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::{Kernel, of};
    use crate::commands::boot::kernel_words::Words;

    fn line(kernel: &Kernel, arguments: &[&str]) -> Result<String, String> {
        of(kernel, None, &[], "/a", arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn the_kernel_splits_what_was_joined() {
        let arguments = ["1", "two words", "", "a=b c", "-x", "--", " "];
        let line = line(&Kernel::Minflt, &arguments).expect("fits");
        assert_eq!(
            line,
            "rdinit=/a -- 1 \"two words\" \"\" \"a=b c\" -x -- \" \""
        );
        let words: Vec<&str> = Words::of(&line).collect();
        assert_eq!(words[..2], ["rdinit=/a", "--"]);
        assert_eq!(words[2..], arguments);
        let mut words = Words::of("a  b");
        assert_eq!((words.next(), words.rest()), (Some("a"), "  b"));
        // Quotes that are open, or inside a word.
        let words: Vec<&str> = Words::of(" x=\"a b\"c \"open end").collect();
        assert_eq!(words, ["x=\"a b\"c", "open end"]);
    }

    #[test]
    fn words_are_added_before_the_program() {
        let with = |word: &str| of(&Kernel::Minflt, Some("e"), &[word.to_owned()], "/a", &["1"]);
        let line = with("swap=64").expect("fits");
        assert_eq!(line, "era=e swap=64 rdinit=/a -- 1");
        for word in ["rdinit=/b", "--", "a b", ""] {
            assert!(with(word).is_err(), "{word}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let linux = Kernel::Linux("vmlinuz".into());
        let said = |kernel: &Kernel, arguments: &[&str]| line(kernel, arguments).expect_err("no");
        assert!(said(&Kernel::Minflt, &["a\"b"]).contains("without quotes"));
        assert!(said(&linux, &["a\nb"]).contains("printable ASCII"));
        assert!(said(&linux, &["--"]).contains("second --"));
        assert!(said(&linux, &["a"; 31]).contains("at most 30"));
        assert!(said(&linux, &[&"a".repeat(2000)]).contains("at most 2047"));
        assert!(line(&linux, &["a"; 30]).is_ok());
    }
}
