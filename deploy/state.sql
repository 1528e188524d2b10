-- Run once, when the compose file's Postgres is new: the database of subsetd's state, beside the one that it follows.
create database subsetd;
