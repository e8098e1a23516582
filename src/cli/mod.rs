//! The command line: one file a command, arguments and printing, never how anything is done.

mod arguments;
mod build;
mod completions;
mod config;
mod context;
mod init;
mod kcl;
mod run;
mod worker;

pub use arguments::{Cli, Command, Global};
pub use context::{Colour, Context};
pub use run::main;
