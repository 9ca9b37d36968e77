long frameless_outer(long rounds);
long frameless_back(long rounds);
