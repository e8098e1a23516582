//! Policy sets: rules in Rego, ValidatingAdmissionPolicies and Gatekeeper's constraints, evaluated on the plan document of a stack. Pure: the files are read by `run::policy_set_loader`.
//!
//! `set_rules` parses the rules of one set and evaluates them: it makes the inputs (`input`), runs the rules
//! (`rego`, `admission`, `gatekeeper`), and decides what an unknown value means (`possible_reads`). `set` makes findings of the
//! outcomes, and masks them. `all_sets` has the sets of a configuration and takes out what an exception covers.

mod admission;
mod admission_addresses;
mod admission_code;
mod admission_formats;
mod admission_functions;
mod admission_libraries;
mod admission_match;
mod admission_policy;
mod admission_request;
#[cfg(test)]
mod admission_tests;
mod admission_urls;
mod all_sets;
mod cel_arguments;
mod cel_conjuncts;
mod cel_pairs;
mod cel_regex;
#[cfg(test)]
mod cel_tests;
#[cfg(test)]
mod certain_tests;
mod exception;
#[cfg(test)]
mod exception_tests;
mod finding_mask;
mod gatekeeper;
mod gatekeeper_match;
mod gatekeeper_template;
#[cfg(test)]
mod gatekeeper_tests;
mod gator_suites;
mod go_float;
mod go_regex;
#[cfg(test)]
mod hostile_tests;
mod input;
mod json_patch;
mod moved_resources;
#[cfg(test)]
mod override_tests;
mod policy_objects;
mod possible_reads;
mod rego;
mod rego_builtins;
mod rego_definitions;
mod rego_differences;
mod rego_engine;
mod rego_functions;
mod rego_imports;
mod rego_numbers;
mod rego_operators;
mod rego_value;
mod rule;
mod set;
mod set_rules;
#[cfg(test)]
mod tests;

pub use all_sets::PolicySets;
pub use moved_resources::MovedResources;
pub use rule::{FailedTest, NoOutcomes, PolicyFile, RuleOutcome};
pub use set::PolicySet;
pub use set_rules::{SetRules, SetSource, UnreadableSet};
