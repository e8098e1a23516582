//! Policy sets, held against the programs whose rules they are: conftest, and Gatekeeper's gator. What these said is
//! committed; the ignored tests ask them again, and about random objects.

mod conftest;
pub mod created_objects;
mod gatekeeper;
mod opa_numbers;
mod opa_table;
mod true_values;
mod workers;
