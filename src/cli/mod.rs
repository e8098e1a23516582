//! The command line: one file per command, with arguments and printing only.

mod adopt;
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
mod demo_apply;
mod destroy;
mod docs_gen;
mod doctor;
mod drift;
mod export;
mod freeze;
mod global_args;
mod graph;
mod health;
mod help_groups;
mod init;
mod kcl;
mod kcl_lock;
mod kcl_worker;
mod list;
mod lsp;
mod models;
mod notify;
mod option_groups;
mod portal;
mod preview;
mod progress;
mod rollout;
mod rule_worker;
#[cfg(feature = "serve")]
mod serve;
mod set;
#[cfg(test)]
mod shown_commands_tests;
mod state;
mod status;
mod test;
mod watch;

pub use app::main;
pub use args::{Cli, Command};
pub use context::CliContext;
pub use global_args::ColorMode;
pub use global_args::Global;
