//! `konverge lsp`, spoken to as an editor does.

mod bad_input;
mod client;
mod session;
mod tools;
