"""Timer messages at any time: a native thread moves them through timer log and timer wheel, and delivers what is due."""
