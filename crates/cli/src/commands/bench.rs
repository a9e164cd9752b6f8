//! stub
use crate::args::Bench;
use crate::error::Error;
pub(crate) fn run(_: &Bench) -> Result<(), Error> { Ok(()) }
