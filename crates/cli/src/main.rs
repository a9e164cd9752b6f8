//! The `minflt` program.
//!
//! Exit status: 0 done, 1 ran and failed (an oracle spoke, arithmetic does not hold, a file cannot
//! be written), 2 the command line asks for what is not there, 130 interrupted. Each but 0 comes
//! with one line; that of 2 says what would be right. `tests/bad_inputs` is the table of them.
//! `boot` ends as the program did that it booted.
#![forbid(unsafe_code)]

mod args;
mod choice;
mod commands;
mod error;
mod examples;
mod experiment;
mod files;
mod help;
mod machine;
mod out;
mod outputs;
mod parallel;
mod progress;
mod rows;
mod scratch;
mod targets;
mod words;

use args::Command;
use error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match help::parse() {
        Ok(args) => args,
        Err(status) => return status,
    };
    // Where that cannot be had, Ctrl-C ends the program without a line.
    let _may_fail = outputs::on_interrupt();
    let result = match &args.command {
        Command::Reproduce(args) => commands::reproduce::run(args),
        Command::Postings(args) => commands::postings::run(args),
        Command::Bench(args) => commands::bench::run(args),
        Command::Boot(args) => match commands::boot::run(args) {
            Ok(status) => return ExitCode::from(status),
            Err(error) => Err(error),
        },
        Command::Advise(args) => commands::advise::run(args),
        Command::Compare(args) => commands::compare::run(args),
        Command::Curves(args) => commands::curves::run(args),
        Command::Efficiency(args) => commands::curves::efficiency::run(args),
        Command::Check(args) => commands::check::run(args),
        Command::Races(args) => commands::races::run(args),
        Command::Eras => commands::lists::eras(),
        Command::Formats => commands::lists::formats(),
        Command::Workloads => commands::lists::workloads(),
        Command::Machines(args) => commands::machines::run(args),
        Command::Calibrate(args) => commands::calibrate::run(args),
        Command::Sensitivity(args) => commands::sensitivity::run(args),
        Command::Completions(args) => commands::generated::completions(args),
        Command::Man(args) => commands::generated::man(args),
    };
    match result {
        Ok(()) if out::has_failed() => ExitCode::FAILURE,
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out::complain(format_args!("minflt: {error}"));
            match error {
                Error::Failed(_) => ExitCode::from(1),
                Error::Usage(_) => ExitCode::from(2),
            }
        }
    }
}
