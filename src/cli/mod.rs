//! The command line: one file per command, with arguments and printing only.

mod affected;
mod app;
mod apply;
mod args;
mod build;
mod cache;
mod check;
mod ci;
mod common_args;
mod completers;
mod completions;
mod config;
mod confirm;
mod context;
mod demo;
mod destroy;
mod docs_gen;
mod doctor;
mod drift;
mod global_args;
mod graph;
mod health;
mod init;
mod kcl;
mod kcl_worker;
mod list;
mod option_groups;
mod preview;
mod progress;
mod state;
mod status;

pub use app::main;
pub use args::{Cli, Command};
pub use context::CliContext;
pub use global_args::ColorMode;
pub use global_args::Global;
