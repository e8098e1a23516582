[package]
name = "demo"
version = "0.1.0"
