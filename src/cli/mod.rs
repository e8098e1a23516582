//! The command line: one file a command, arguments and printing, never how anything is done.

mod affected;
mod confirm;
mod apply;
mod args;
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
mod docs_gen;
mod app;
mod state;
mod status;
mod common_args;
mod kcl_worker;

pub use args::{Cli, Command, Global};
pub use context::{Colour, Context};
pub use app::main;
