module ownprofiles

go 1.19
