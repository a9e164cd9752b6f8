//! The command line as clap sees it: the arguments with the examples, the list of commands in
//! groups, and errors in one line.

use crate::args::Args;
use crate::examples::{EXAMPLES, section};
use crate::out::complain;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};
use std::io;
use std::process::ExitCode;

/// What stands below the list of commands.
const FIRST: &str = "\
First time here? `minflt reproduce --budget 60s` prints first figures within 20 s and writes a page;
`minflt races P30 --show` draws a race. `minflt help COMMAND` ends with examples.";

/// The commands by what they are for, in the order in which they are listed.
const GROUPS: &[(&str, &[&str])] = &[
    ("Start here", &["reproduce", "postings", "advise"]),
    (
        "Measure and simulate",
        &["bench", "compare", "curves", "efficiency"],
    ),
    ("Boot the kernel", &["boot"]),
    ("Find races", &["races", "check"]),
    (
        "Names that options take",
        &["workloads", "eras", "machines", "formats"],
    ),
    ("The model's numbers", &["calibrate", "sensitivity"]),
    ("This program", &["completions", "man", "help"]),
];

/// Options with numbers: what follows one is its value even if it begins with a minus, so that the
/// message is about the value.
const NUMBERS: &[&str] = &[
    "threads",
    "cpus",
    "mem",
    "timeout",
    "size",
    "ram",
    "swap",
    "rounds",
    "seeds",
    "schedules",
    "seed",
    "budget",
    "fail_over",
    "fault_around_order",
];

/// The whole command line.
pub(crate) fn command() -> clap::Command {
    let mut command = Args::command();
    let groups = groups(&command);
    command = command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\nOptions:\n{{options}}\
         {{after-help}}"
    ));
    command = command.after_help(FIRST);
    for (name, examples) in EXAMPLES {
        command = command.mut_subcommand(name, |it| {
            let it = it.after_help(section(examples));
            it.mut_args(|arg| {
                let has_number = NUMBERS.contains(&arg.get_id().as_str());
                arg.allow_hyphen_values(has_number)
            })
        });
    }
    command
}

/// The commands in groups, each with the first sentence of what it does.
fn groups(command: &clap::Command) -> String {
    let mut text = String::new();
    for (heading, names) in GROUPS {
        text += &format!("{heading}:\n");
        for name in *names {
            let about = match command.find_subcommand(name) {
                Some(it) => it.get_about().map(ToString::to_string).unwrap_or_default(),
                None => "Print this, or the help of a command".into(),
            };
            let about = about.split(['.', ':', ';']).next().unwrap_or_default();
            text += &format!("  {name:13}{about}\n");
        }
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

/// The arguments of this run; else what to exit with, after help or an error was printed.
pub(crate) fn parse() -> Result<Args, ExitCode> {
    let parsed = command()
        .try_get_matches()
        .and_then(|matches| Args::from_arg_matches(&matches));
    parsed.map_err(|error| report(&error))
}

fn report(error: &clap::Error) -> ExitCode {
    let is_help =
        !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !is_help {
        complain(format_args!("minflt: {}", one_line(error)));
        return ExitCode::from(2);
    }
    match error.print() {
        Err(why) if why.kind() != io::ErrorKind::BrokenPipe => {
            complain(format_args!(
                "minflt: cannot write to standard output: {why}"
            ));
            ExitCode::from(1)
        }
        _ => ExitCode::from(if error.use_stderr() { 2 } else { 0 }),
    }
}

/// An error of clap without its paragraphs: what is wrong, what is meant, and where help is.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "));
    let said = text.lines().map(str::trim).take_while(|line| {
        !line.starts_with("Usage: ") && !line.starts_with("For more information")
    });
    let mut line = String::new();
    for part in said.filter(|part| !part.is_empty()) {
        let part = part.strip_prefix("error: ").unwrap_or(part);
        match part.strip_prefix("tip: ") {
            Some(tip) => line += &format!("; {tip}"),
            None if line.is_empty() => line += part,
            None => line += &format!(" {part}"),
        }
    }
    if let Some(usage) = usage {
        let words = usage
            .split(' ')
            .take_while(|it| !it.starts_with(['[', '<', '-']));
        line += &format!("; see `{} --help`", words.collect::<Vec<_>>().join(" "));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{GROUPS, command};
    use crate::examples::EXAMPLES;

    fn names() -> Vec<String> {
        let command = command();
        let all = command.get_subcommands().map(|it| it.get_name().to_owned());
        all.collect()
    }

    #[test]
    fn every_command_is_in_one_group_and_has_examples() {
        for name in names() {
            let mut groups = GROUPS.iter().flat_map(|(_, names)| *names);
            assert_eq!(
                groups.by_ref().filter(|it| **it == name).count(),
                1,
                "{name}"
            );
            let found = EXAMPLES.iter().filter(|(of, _)| *of == name);
            let counts: Vec<_> = found.map(|(_, examples)| examples.len()).collect();
            assert!(matches!(counts[..], [2..=6]), "{name}: {counts:?}");
        }
        assert_eq!(EXAMPLES.len(), names().len());
    }

    #[test]
    fn clap_takes_every_example() {
        command().debug_assert();
        for (name, examples) in EXAMPLES {
            let mut its_own = false;
            for (line, _) in *examples {
                let words: Vec<_> = line.split(' ').collect();
                let parsed = command().try_get_matches_from(&words);
                let parsed = parsed.map_err(|error| format!("{line}: {error}"));
                its_own |= parsed.expect("parses").subcommand_name() == Some(name);
            }
            assert!(its_own, "no example of {name} calls it");
        }
    }
}
