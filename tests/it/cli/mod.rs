//! Commands as a user types them.

pub mod app_configurations;
pub mod bad_input;
pub mod build;
pub mod check;
pub mod check_change;
pub mod check_data;
pub mod check_goldens;
pub mod check_policy;
pub mod cores;
pub mod destroy;
pub mod doctor;
pub mod empty_repository;
pub mod example;
pub mod first_run;
pub mod freeze;
pub mod kcl_errors;
pub mod konfigs;
pub mod kusion_modules;
pub mod migration;
pub mod output;
pub mod package_locks;
pub mod selection;
pub mod shells;
pub mod start_guides;
pub mod status;
pub mod tutorial;
