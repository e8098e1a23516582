//! The integration tests, one binary: a file per subject, run on the real parts that `scripts/parts install` puts in
//! place (`make test` does both).
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)]
#![allow(missing_docs)]

mod support;

mod action;
mod affected;
mod affected_core;
mod affected_repo;
mod bad_input;
mod build;
mod caches;
mod cancelled;
mod check;
mod comment;
mod deployments;
mod descriptions;
mod docs;
mod doctor;
mod drift_job;
mod engine;
mod event;
mod events_told;
mod exact;
mod example;
mod feedback;
mod git;
mod github;
mod guardrails;
mod health;
mod health_rollouts;
mod hostile;
mod kcl;
mod kubernetes;
mod kubernetes_faults;
mod kubernetes_fidelity;
mod kubernetes_traps;
mod main_job;
mod matrix;
mod migration;
mod notify;
mod packages;
mod parts;
mod parts_on_demand;
mod permissions;
mod receipts;
mod requests;
mod rollback;
mod rooms;
mod sandbox;
mod schema;
mod spec_processes;
mod state;
mod state_cli;
mod state_import;
mod state_model;
mod state_processes;
mod store_trouble;
mod stores;
mod terraform;
mod waiting;
mod workflows;
