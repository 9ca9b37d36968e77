long framed_outer(long rounds);
long framed_back(long rounds);
