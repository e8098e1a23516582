//! The command line: one file a command, arguments and printing, never how anything is done.

mod affected;
mod agreement;
mod apply;
mod arguments;
mod build;
mod cache;
mod check;
mod ci;
mod completions;
mod config;
mod context;
mod destroy;
mod doctor;
mod drift;
mod graph;
mod health;
mod init;
mod kcl;
mod preview;
mod progress;
mod reference;
mod run;
mod state;
mod status;
mod which;
mod worker;

pub use arguments::{Cli, Command, Global};
pub use context::{Colour, Context};
pub use run::main;
