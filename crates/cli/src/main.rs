//! The `minflt` program.
//!
//! Exit status: 0 done, 1 ran and failed (an oracle spoke, arithmetic does not hold), 2 the command
//! line asks for what is not there, with one line that says what would be right.
#![forbid(unsafe_code)]

mod args;
mod choice;
mod commands;
mod error;
mod experiment;
mod machine;
mod out;
mod outputs;
mod parallel;
mod progress;
mod rows;
mod targets;

use args::{Args, Command};
use clap::Parser;
use error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.command {
        Command::Reproduce(args) => commands::reproduce::run(args),
        Command::Postings(args) => commands::postings::run(args),
        Command::Bench(args) => commands::bench::run(args),
        Command::Advise(args) => commands::advise::run(args),
        Command::Compare(args) => commands::compare::run(args),
        Command::Curves(args) => commands::curves::run(args),
        Command::Check(args) => commands::check::run(args),
        Command::Races(args) => commands::races::run(args),
        Command::Eras => commands::lists::eras(),
        Command::Formats => commands::lists::formats(),
        Command::Workloads => commands::lists::workloads(),
        Command::Machines(args) => commands::machines::run(args),
        Command::Calibrate(args) => commands::calibrate::run(args),
        Command::Sensitivity(args) => commands::sensitivity::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("minflt: {error}");
            match error {
                Error::Failed(_) => ExitCode::from(1),
                Error::Usage(_) => ExitCode::from(2),
            }
        }
    }
}
