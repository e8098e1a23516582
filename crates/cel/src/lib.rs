//! CEL expressions for health rules and policies: values and evaluation.

pub mod cel_expression;
pub mod cel_value;
