//! The portal: the static site, the server, what both ask of a store, and the pages in a browser.

mod apply_record;
mod deployed;
mod fuzzed;
mod login;
mod pages;
mod published;
mod readers;
mod recorded;
mod requests;
mod served;
mod site;
mod visitor;
